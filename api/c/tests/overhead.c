/* Times ellect_apply for a matrix of one entry, so that nearly all of the time is overhead of the call;
 * prints nanoseconds per call, the least of 500 runs. */
#define _POSIX_C_SOURCE 199309L
#include <time.h>

#include "check.h"

static double now_ns(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(void) {
    enum { CALLS = 10000, RUNS = 500 };
    const double value = 2.0, x = 3.0;
    double y = 0.0, least = 1e300;
    ellect_csr csr = example();
    csr.nrows = csr.ncols = csr.nnz = 1;
    const int32_t rows[] = {0, 1};
    csr.row_ptr = rows;
    csr.values = &value;
    OK(ellect_tuner_open("cpu", NULL, &CPU));
    ellect_operator *op = prepared(csr);
    for (int run = 0; run < RUNS; run++) {
        const double start = now_ns();
        for (int call = 0; call < CALLS; call++) {
            OK(ellect_apply(op, 1.0, &x, 1, 0.0, &y, 1));
        }
        const double each = (now_ns() - start) / CALLS;
        least = each < least ? each : least;
    }
    CHECK(y == 6.0);
    ellect_operator_destroy(op);
    ellect_tuner_destroy(CPU);
    printf("ellect_apply: %.0f ns a call for one entry\n", least);
    return 0;
}
