# tests/fuzz/fuzz_<module>_<thing>.c: one LLVMFuzzerTestOneInput each, linked with its module.
#	-DFUZZ=ON (clang)  libFuzzer programs:  build-fuzz/fuzz_agent_frame tests/fuzz/corpus/fuzz_agent_frame
#	else               each replays its corpus, and small mutations of it, as the test of that name
file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(file ${files})
	get_filename_component(name ${file} NAME_WE)
	string(REGEX REPLACE "^fuzz_([a-z]+)_.*" "\\1" mod ${name})
	if(FUZZ)
		add_executable(${name} ${file})
		target_link_options(${name} PRIVATE -fsanitize=fuzzer)
	else()
		add_executable(${name} ${file} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
		add_test(NAME ${name} COMMAND ${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
		set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS unit)
	endif()
	target_link_libraries(${name} PRIVATE ${mod} flags)
endforeach()
