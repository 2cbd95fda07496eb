# Pages that sandboxd prints are committed and current.
foreach(page
		"--print-errors docs/errors.md" "--print-config-page docs/config.md"
		"--print-openapi docs/openapi.json" "--print-defaults config/sandboxd.conf"
		"--print-states docs/states.md")
	separate_arguments(page)
	list(GET page 0 flag)
	list(GET page 1 file)
	string(REGEX REPLACE "^--print-" "api_page_" name ${flag})
	add_test(NAME ${name} COMMAND sh ${PROJECT_SOURCE_DIR}/tests/api/page.sh
		$<TARGET_FILE:sandboxd> ${flag} ${PROJECT_SOURCE_DIR}/${file})
	set_tests_properties(${name} PROPERTIES LABELS api)
endforeach()

add_test(NAME api_openapi_lint COMMAND sh ${PROJECT_SOURCE_DIR}/tests/api/openapi.sh
	${PROJECT_SOURCE_DIR}/docs/openapi.json ${PROJECT_BINARY_DIR}/openapi-lint)
set_tests_properties(api_openapi_lint PROPERTIES LABELS api TIMEOUT 180 SKIP_RETURN_CODE 77)

add_test(NAME api_conformance COMMAND /usr/bin/python3 -B ${PROJECT_SOURCE_DIR}/tests/api/conformance.py ${PROJECT_SOURCE_DIR})
set_tests_properties(api_conformance PROPERTIES LABELS api)
