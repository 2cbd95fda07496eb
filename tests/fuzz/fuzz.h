#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* What libFuzzer calls; 0 always.  A fault is an abort. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
