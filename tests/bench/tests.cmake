# Benchmarks: built on demand (ninja bench_<name>), never part of the test run.
add_executable(bench_store EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/bench/store.c)
target_link_libraries(bench_store PRIVATE store_fixture)
