# Whole-tree checks that are no program of ours: the other compiler, the shell scripts.
if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
	add_test(NAME build_clang COMMAND sh ${PROJECT_SOURCE_DIR}/tests/ops/build_clang.sh ${PROJECT_SOURCE_DIR}
		${PROJECT_BINARY_DIR}/clang)
	# It starts first and takes one of the two cores while the tests that wait use the other.
	set_tests_properties(build_clang PROPERTIES LABELS build TIMEOUT 900 COST 1000)
endif()
add_test(NAME lint_scripts COMMAND sh ${PROJECT_SOURCE_DIR}/tests/ops/scripts.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(lint_scripts PROPERTIES LABELS lint)

# A configuration file that does not say what the program says is worse than none.
add_test(NAME generated_region_conf COMMAND sh -c "$<TARGET_FILE:sandbox-region> --print-defaults |
	diff -u ${PROJECT_SOURCE_DIR}/config/region.conf -")
set_tests_properties(generated_region_conf PROPERTIES LABELS lint)
