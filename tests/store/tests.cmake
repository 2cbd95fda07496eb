# Tests of the store on a real PostgreSQL: each program gets a cluster of its own (tests/lib/pg.sh).
add_library(store_fixture STATIC ${PROJECT_SOURCE_DIR}/tests/store/fixture.c)
target_link_libraries(store_fixture PUBLIC store flags sanitize ${CMOCKA})
target_include_directories(store_fixture PUBLIC tests)
target_compile_definitions(store_fixture PUBLIC TEST_PG_SH="${PROJECT_SOURCE_DIR}/tests/lib/pg.sh"
	UPGRADE_DIR="${PROJECT_SOURCE_DIR}/tests/store/upgrade")
file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/store/test_*.c)
foreach(file ${files})
	get_filename_component(name ${file} NAME_WE)
	add_executable(store_${name} ${file})
	target_link_libraries(store_${name} PRIVATE store_fixture)
	add_test(NAME store_${name}
		COMMAND sh ${PROJECT_SOURCE_DIR}/tests/lib/pg.sh run $<TARGET_FILE:store_${name}>)
	set_tests_properties(store_${name} PROPERTIES TIMEOUT 120 LABELS store)
endforeach()
