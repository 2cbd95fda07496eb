# Benchmarks: built on demand (ninja bench_<name>), never part of the test run.
add_executable(bench_store EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/bench/store.c)
target_link_libraries(bench_store PRIVATE store_fixture)
# The yardstick of tests/bench/http_figures.py: libmicrohttpd with as little as possible around it.
add_executable(mhd_bare EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/bench/mhd_bare.c)
target_link_libraries(mhd_bare PRIVATE flags store http base)
