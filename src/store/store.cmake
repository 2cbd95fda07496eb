# The migrations become one C file: no file is needed where the program runs.
file(GLOB migrations CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/migrations/*.sql)
set(generated ${PROJECT_BINARY_DIR}/store_migrations.c)
add_custom_command(OUTPUT ${generated}
	COMMAND ${CMAKE_COMMAND} -DOUT=${generated} -DDIR=${PROJECT_SOURCE_DIR}/migrations
		-P ${PROJECT_SOURCE_DIR}/src/store/embed.cmake
	DEPENDS ${migrations} ${PROJECT_SOURCE_DIR}/src/store/embed.cmake
	VERBATIM)
target_sources(store PRIVATE ${generated})
