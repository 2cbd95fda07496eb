# tests/system/test_*.py: one ctest entry each, `system_<name>`, on the real programs.  A file may say
# in its first 20 lines
#	# ctest: serial          it measures, or loads both cores: nothing runs beside it
#	# ctest: timeout 300     seconds; 240 without
#	# ctest: early           it is long: it starts among the first
#	# ctest: lock NAME       not beside another test with that lock
file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/system/test_*.py)
foreach(file ${files})
	get_filename_component(name ${file} NAME_WE)
	string(REGEX REPLACE "^test_" "system_" name ${name})
	add_test(NAME ${name} COMMAND /usr/bin/python3 -B ${file} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests/system)
	set_tests_properties(${name} PROPERTIES LABELS system TIMEOUT 240 SKIP_RETURN_CODE 77
		ENVIRONMENT "SANDBOXD_BUILD=${PROJECT_BINARY_DIR};SANDBOXD_SOURCE=${PROJECT_SOURCE_DIR}")
	file(STRINGS ${file} marks LIMIT_COUNT 20 REGEX "^# ctest: ")
	foreach(mark ${marks})
		if(mark MATCHES "^# ctest: serial")
			set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
		elseif(mark MATCHES "^# ctest: early")
			set_tests_properties(${name} PROPERTIES COST 900)
		elseif(mark MATCHES "^# ctest: timeout ([0-9]+)")
			set_tests_properties(${name} PROPERTIES TIMEOUT ${CMAKE_MATCH_1})
		elseif(mark MATCHES "^# ctest: lock ([a-z0-9_-]+)")
			set_tests_properties(${name} PROPERTIES RESOURCE_LOCK ${CMAKE_MATCH_1})
		else()
			message(FATAL_ERROR "${file}: unknown mark: ${mark}")
		endif()
	endforeach()
endforeach()

# These run inside a sandbox, so they are static and without sanitizers.
foreach(name agent_attack egress_probe)
	add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/system/${name}.c)
	target_link_libraries(${name} PRIVATE flags)
	target_link_options(${name} PRIVATE -static)
endforeach()

# /opt/warren/run of the personal runs' test image.
find_library(JANSSON_STATIC libjansson.a REQUIRED)
add_executable(warren_run ${PROJECT_SOURCE_DIR}/tests/system/warren_run.c)
target_link_libraries(warren_run PRIVATE flags ${JANSSON_STATIC})
target_link_options(warren_run PRIVATE -static)

# The server as its next version: the same, with one more migration (tests/system/test_upgrade.py).
set(next ${PROJECT_BINARY_DIR}/next_migrations.c)
set(next_sql ${PROJECT_SOURCE_DIR}/tests/system/next/9001_next.sql)
add_custom_command(OUTPUT ${next}
	COMMAND ${CMAKE_COMMAND} -DOUT=${next} -DDIR=${PROJECT_SOURCE_DIR}/migrations -DMORE=${next_sql}
		-P ${PROJECT_SOURCE_DIR}/src/store/embed.cmake
	DEPENDS ${migrations} ${next_sql} ${PROJECT_SOURCE_DIR}/src/store/embed.cmake
	VERBATIM)
program(sandboxd_next MAIN sandboxd SOURCES standalone.c standalone_postgres.c supervise.c USES api reconcile region store http net domain base)
target_sources(sandboxd_next PRIVATE ${next})
