# The deterministic simulation.  Its own build of the pure parts, optimised and without
# sanitizers, so that ten thousand histories fit into a test run; some run sanitized too.
set(sim_sources
	${PROJECT_SOURCE_DIR}/tests/sim/main.c
	${PROJECT_SOURCE_DIR}/tests/sim/sim_world.c
	${PROJECT_SOURCE_DIR}/tests/sim/sim_store.c
	${PROJECT_SOURCE_DIR}/tests/sim/sim_region.c
	${PROJECT_SOURCE_DIR}/tests/sim/sim_warm.c
	${PROJECT_SOURCE_DIR}/tests/sim/sim_runs.c
	${PROJECT_SOURCE_DIR}/tests/sim/sim_owners.c
	${PROJECT_SOURCE_DIR}/tests/sim/sim_check.c)
foreach(part core write ops act sweep warm lend ask runs runs_steps run_moves)
	list(APPEND sim_sources ${PROJECT_SOURCE_DIR}/src/reconcile/${part}.c)
endforeach()
file(GLOB sim_pure CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/domain/*.c)
foreach(part arena buf error file hash id json log mem secret str thread time)
	list(APPEND sim_pure ${PROJECT_SOURCE_DIR}/src/base/${part}.c)
endforeach()
add_executable(sim ${sim_sources} ${sim_pure})
target_include_directories(sim PRIVATE tests)
target_compile_options(sim PRIVATE -O2)
target_link_libraries(sim PRIVATE flags PkgConfig::JANSSON PkgConfig::CRYPTO Threads::Threads)
add_executable(sim_sanitized ${sim_sources})
target_include_directories(sim_sanitized PRIVATE tests)
target_link_libraries(sim_sanitized PRIVATE domain base sanitize flags)

add_test(NAME sim_histories COMMAND sim --histories 10000 --jobs 2)
add_test(NAME sim_sanitized COMMAND sim_sanitized --seed 700000 --histories 150)
foreach(mutation no-generation-guard no-undo quota-outside-transaction latest-first warm-twice
		start-again exit-invented fence-by-age holder-late)
	add_test(NAME sim_finds_${mutation} COMMAND sim --histories 50000 --jobs 2 --mutation ${mutation})
	set_tests_properties(sim_finds_${mutation} PROPERTIES LABELS sim TIMEOUT 600)
endforeach()
set_tests_properties(sim_histories sim_sanitized PROPERTIES LABELS sim TIMEOUT 600)
