/* Assertions of the C tests, and the matrix that they share. */
#ifndef ELLECT_TESTS_CHECK_H
#define ELLECT_TESTS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ellect.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, \
                    ellect_last_error_message());                                     \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

#define OK(call) CHECK((call) == ELLECT_OK)

/* The call fails with this status, and the message and the remedy say something. */
#define FAILS(call, status)                              \
    do {                                                 \
        CHECK((call) == (status));                       \
        CHECK(ellect_last_error() == (status));          \
        CHECK(strlen(ellect_last_error_message()) > 10); \
        CHECK(strlen(ellect_last_error_remedy()) > 5);   \
    } while (0)

/*     | 4 . 1 . |
 *     | . 5 . . |
 *     | . . . . |
 *     | 2 . . 6 |
 *     | . . 3 . |  */
static const int32_t ROWS[] = {0, 2, 3, 3, 5, 6}, COLUMNS[] = {0, 2, 1, 0, 3, 2};
static const double VALUES[] = {4, 1, 5, 2, 6, 3}, X[] = {1, 10, 100, 1000};
static const double PRODUCT[] = {104, 50, 0, 6002, 300};

/* Describes the matrix above; the arrays are borrowed. */
static inline ellect_csr example(void) {
    ellect_csr csr = {0};
    csr.struct_size = sizeof csr;
    csr.nrows = 5;
    csr.ncols = 4;
    csr.nnz = 6;
    csr.row_ptr = ROWS;
    csr.col_idx = COLUMNS;
    csr.values = VALUES;
    csr.row_ptr_type = csr.col_idx_type = ELLECT_I32;
    csr.value_type = ELLECT_F64;
    return csr;
}

/* The tuner of all tests; main destroys it. */
static ellect_tuner *CPU;

/* Prepares the described matrix on the host. */
static inline ellect_operator *prepared(ellect_csr csr) {
    ellect_matrix *matrix;
    ellect_operator *op;
    OK(ellect_matrix_create(&csr, &matrix));
    OK(ellect_prepare(CPU, matrix, NULL, &op));
    ellect_matrix_destroy(matrix);
    return op;
}

#endif
