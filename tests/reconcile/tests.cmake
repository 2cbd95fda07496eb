# The reconciler on a real PostgreSQL against a region that can be told to misbehave.
file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/reconcile/test_*.c)
foreach(file ${files})
	get_filename_component(name ${file} NAME_WE)
	add_executable(reconcile_${name} ${file} ${PROJECT_SOURCE_DIR}/tests/reconcile/fake_region.c)
	target_link_libraries(reconcile_${name} PRIVATE reconcile http store_fixture)
	add_test(NAME reconcile_${name}
		COMMAND sh ${PROJECT_SOURCE_DIR}/tests/lib/pg.sh run $<TARGET_FILE:reconcile_${name}>)
	set_tests_properties(reconcile_${name} PROPERTIES TIMEOUT 180 LABELS store)
endforeach()
