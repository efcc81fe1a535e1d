/* C interface of ellect: autotuned sparse matrix-vector products y = alpha A x + beta y.
 *
 * Generated from api/c/src by api/c/header.sh; do not edit.
 *
 * Every function checks its arguments: addresses that must not be NULL, lengths, enumerations. It
 * returns ELLECT_OK or the number of a failure, and ellect_last_error_message() then says what is
 * wrong and what to do. Descriptors begin with their own size, and all zeros are their defaults.
 * Functions named _destroy accept NULL. CUDA's headers are not needed: streams are void pointers.
 * The library starts threads, so processes that use it must not fork without exec.
 */

#ifndef ELLECT_H
#define ELLECT_H

#include <stddef.h>
#include <stdint.h>

// Indices are `int32_t`.
#define ELLECT_I32 1

// Indices are `int64_t`.
#define ELLECT_I64 2

// Arrays are in the memory of the host.
#define ELLECT_HOST 0

// Arrays are in the memory of a GPU.
#define ELLECT_DEVICE 1

// The matrix uses the caller's arrays. They stay valid and unchanged as long as the matrix exists;
// on a GPU, also as long as every operator that was prepared from it.
#define ELLECT_BORROW 0

// The matrix uses copies of the caller's arrays, which may be freed at once. On the host, unsorted
// rows are sorted and repeated entries are summed; then new values need `ellect_update_matrix`.
#define ELLECT_COPY 1

// Arrays on a GPU are copied to the host once and checked before they are used.
#define ELLECT_CHECK 0

// The caller guarantees that arrays on a GPU are a valid matrix. Wrong arrays crash the program.
#define ELLECT_TRUST 1

// The dot product (y, x), of a square matrix.
#define ELLECT_DOT_X 0

// The dot product (y, y).
#define ELLECT_DOT_Y 1

// The dot product (y, z).
#define ELLECT_DOT_Z 2

// Values are `float`.
#define ELLECT_F32 1

// Values are `double`.
#define ELLECT_F64 2

// Vectors lie one after the other, as in Fortran.
#define ELLECT_COLUMN_MAJOR 0

// The elements of all vectors for one row lie one after the other.
#define ELLECT_ROW_MAJOR 1

// Use trained models and stored measurements; time nothing. The default.
#define ELLECT_PREDICT 0

// Use closed formulas only.
#define ELLECT_ESTIMATE 1

// Time CSR and the best candidates on the device.
#define ELLECT_MEASURE 2

// Time every candidate that applies.
#define ELLECT_EXHAUSTIVE 3

// x and y are in the order of the matrix.
#define ELLECT_ORIGINAL 0

// A format may permute rows and columns alike; `ellect_permutation` returns the order.
#define ELLECT_PERMUTED 1

// A matrix, made by `ellect_matrix_create` or `ellect_matrix_read`.
//
// Thread safety: any number of threads may use one matrix at a time; none while it is destroyed.
typedef struct ellect_matrix ellect_matrix;

// A matrix prepared for repeated products, made by `ellect_prepare`.
//
// Thread safety: on the host, any number of threads may use one operator at a time; updates wait for
// products. On a GPU, one thread at a time queues products, on one stream at a time. No thread uses
// an operator while it is destroyed.
typedef struct ellect_operator ellect_operator;

// A rank, made by `ellect_rank_create`.
//
// Thread safety: one thread at a time calls functions with a rank or with its operators.
typedef struct ellect_rank ellect_rank;

// The own rows of a matrix that several processes share, made by `ellect_rank_prepare`.
//
// Thread safety: one thread at a time calls functions with a rank or with its operators.
typedef struct ellect_rank_operator ellect_rank_operator;

// A tuner of one device, made by `ellect_tuner_open`.
//
// Thread safety: any number of threads may use one tuner at a time; none while it is destroyed.
typedef struct ellect_tuner ellect_tuner;

// Status of a call: `ELLECT_OK` or the kind of failure. The numbers never change.
typedef int32_t ellect_status;

// A list of what a product computes of the new y in the same pass: up to 3 dot products, and
// w = w + gamma y. Set `struct_size` to `sizeof(ellect_fused)`; zeros ask for nothing.
//
// Vectors and results are of the operator's value type. y, w and the results overlap no other vector.
typedef struct ellect_fused {
    // `sizeof(ellect_fused)`.
    size_t struct_size;
    // The dot products, `dots` numbers: `ELLECT_DOT_X`, `ELLECT_DOT_Y` or `ELLECT_DOT_Z`, which occurs at
    // most once. Always in host memory.
    const int32_t *with;
    // Number of dot products, up to 3.
    int32_t dots;
    // Not 0: the product is with the transpose, as of `ellect_apply_transposed`.
    int32_t transposed;
    // The results, `dots` values in the order of `with`.
    void *results;
    // The vector z of `ELLECT_DOT_Z`.
    const void *z;
    // Length of z: that of y.
    int64_t z_len;
    // Factor of y in w = w + gamma y.
    double gamma;
    // The vector w; NULL if none is to change.
    void *w;
    // Length of w: that of y.
    int64_t w_len;
} ellect_fused;

// A matrix in compressed sparse rows: set `struct_size` to `sizeof(ellect_csr)`, all other fields
// that you do not need to 0.
//
// `row_ptr` has `nrows + 1` offsets from 0 to `nnz` that never fall; `col_idx` has `nnz` columns
// from 0 to `ncols - 1` that strictly rise in each row; `values` has `nnz` numbers.
typedef struct ellect_csr {
    // `sizeof(ellect_csr)`.
    size_t struct_size;
    // Number of rows, at most 2^32 - 1.
    int64_t nrows;
    // Number of columns, at most 2^32 - 1.
    int64_t ncols;
    // Number of entries.
    int64_t nnz;
    // Offsets of the rows.
    const void *row_ptr;
    // Columns of the entries; may be NULL if there are none.
    const void *col_idx;
    // Values of the entries; may be NULL if there are none.
    const void *values;
    // Type of `row_ptr`: `ELLECT_I32` or `ELLECT_I64`.
    int32_t row_ptr_type;
    // Type of `col_idx`: `ELLECT_I32`, on the host also `ELLECT_I64`, which is narrowed in a copy.
    int32_t col_idx_type;
    // Type of `values`: `ELLECT_F32` or `ELLECT_F64`.
    int32_t value_type;
    // Memory of the three arrays: `ELLECT_HOST` or `ELLECT_DEVICE`.
    int32_t memory;
    // `ELLECT_BORROW` or `ELLECT_COPY`.
    int32_t ownership;
    // For arrays on a GPU: `ELLECT_CHECK` or `ELLECT_TRUST`. Arrays on the host are always checked.
    int32_t check;
    // For arrays on a GPU: the `cudaStream_t` or `CUstream` whose queued work writes them. NULL is
    // the legacy default stream.
    void *stream;
} ellect_csr;

// The intended use of a matrix: set `struct_size` to `sizeof(ellect_workload)`, all other fields that
// you do not need to 0.
typedef struct ellect_workload {
    // `sizeof(ellect_workload)`.
    size_t struct_size;
    // Expected number of products with this pattern; 0 is 1,000.
    int64_t spmvs;
    // Number of times that the values are replaced.
    int64_t updates;
    // Maximum size of the layout in bytes; 0 for the device's memory.
    int64_t memory_limit;
    // Maximum time of measuring in seconds; 0 for no limit.
    double budget_s;
    // `ELLECT_PREDICT`, `ELLECT_ESTIMATE`, `ELLECT_MEASURE` or `ELLECT_EXHAUSTIVE`.
    int32_t effort;
    // `ELLECT_ORIGINAL` or `ELLECT_PERMUTED`.
    int32_t basis;
    // 1 compares one product of the prepared operator with CSR; 0 does not.
    int32_t verify;
    // 1 times no candidate that `effort` does not ask for; 0 lets `ELLECT_PREDICT` on a host time the
    // most promising ones, for at most 2 % of the time of all products.
    int32_t no_trials;
    // Number of vectors of each product (`ellect_apply_many`); 0 is 1.
    int64_t vectors;
    // Expected number of products with the transpose (`ellect_apply_transposed`); 0 for none.
    int64_t transposed;
} ellect_workload;

// Figures of an operator: set `struct_size` to `sizeof(ellect_operator_info)`; the library writes the
// other fields.
typedef struct ellect_operator_info {
    // `sizeof(ellect_operator_info)`.
    size_t struct_size;
    // Number of rows.
    int64_t nrows;
    // Number of columns.
    int64_t ncols;
    // Number of entries.
    int64_t nnz;
    // Size of the arrays in bytes, with those of the transpose.
    int64_t bytes;
    // The chosen format with its parameters, for instance `"hll:hack=32"`. Belongs to the operator and
    // lives as long as it does.
    const char *candidate;
    // Type of values and vectors: `ELLECT_F32` or `ELLECT_F64`.
    int32_t value_type;
    // Memory of the layout: `ELLECT_HOST` or `ELLECT_DEVICE`.
    int32_t memory;
} ellect_operator_info;

// A message to another rank, or room for one from there.
typedef struct ellect_message {
    // The message; written only if it is received.
    void *bytes;
    // Its length in bytes, at least 1.
    int64_t size;
    // The other rank.
    int64_t rank;
} ellect_message;

// Sends `sends` messages and receives `receives` ones, at most one to and one from each other rank, in
// rising order of ranks. Returns 0, or another number for a failure. All ranks call it in the same
// order, and each knows the length of the messages that it receives. The messages stay valid until
// the function returns, or `ellect_finish` if there is one; the two arrays only until it returns.
typedef int32_t (*ellect_exchange)(void *context,
                                   const struct ellect_message *send,
                                   int64_t sends,
                                   const struct ellect_message *receive,
                                   int64_t receives);

// Waits for the messages of the last call of `ellect_exchange`, which then only begins to send and to
// receive. Returns 0, or another number for a failure.
typedef int32_t (*ellect_finish)(void *context);

// This process among those that share a matrix: set `struct_size` to `sizeof(ellect_ranks)`.
typedef struct ellect_ranks {
    // `sizeof(ellect_ranks)`.
    size_t struct_size;
    // Number of this rank, counted from 0.
    int64_t rank;
    // Number of ranks.
    int64_t size;
    // Moves messages. It runs on the thread that calls the library.
    ellect_exchange exchange;
    // Waits for messages; NULL if `exchange` does. The longest run of rows that need no message is
    // multiplied between the two calls.
    ellect_finish finish;
    // The first argument of both functions; the library does not use it.
    void *context;
} ellect_ranks;

// Figures of a rank's operator: set `struct_size` to `sizeof(ellect_rank_info)`; the library writes
// the other fields.
typedef struct ellect_rank_info {
    // `sizeof(ellect_rank_info)`.
    size_t struct_size;
    // Number of rows of the whole matrix.
    int64_t nrows;
    // Number of columns of the whole matrix.
    int64_t ncols;
    // Number of own rows.
    int64_t own_rows;
    // Number of own columns.
    int64_t own_columns;
    // Number of entries in own rows.
    int64_t nnz;
    // Number of elements of x that come from other ranks before each product.
    int64_t halo;
    // Number of ranks that they come from.
    int64_t neighbours;
    // The chosen format with its parameters. Belongs to the operator and lives as long as it does.
    const char *candidate;
    // Type of values and vectors: `ELLECT_F32` or `ELLECT_F64`.
    int64_t value_type;
} ellect_rank_info;

// Folders of a tuner: set `struct_size` to `sizeof(ellect_tuner_options)`, all other fields that you
// do not need to 0. Texts are read during the call only.
typedef struct ellect_tuner_options {
    // `sizeof(ellect_tuner_options)`.
    size_t struct_size;
    // Folder with `models` and `wisdom` inside. NULL is `$ELLECT_DATA`, otherwise `ellect` in the
    // user's XDG data folder.
    const char *data_folder;
    // Folder whose folder `models` holds the models to use instead of those in `data_folder`; NULL
    // for none.
    const char *model_folder;
    // Folder whose folder `wisdom` holds the database of measurements to use instead of that in
    // `data_folder`, created if missing; NULL for none.
    const char *wisdom_folder;
} ellect_tuner_options;

// The call succeeded.
#define ELLECT_OK 0

// A pointer that must not be NULL is NULL.
#define ELLECT_NULL_POINTER 1

// An argument or a field of a descriptor is out of range.
#define ELLECT_INVALID_ARGUMENT 2

// A vector or an array has a length that does not fit the matrix.
#define ELLECT_SHAPE 3

// The arrays or the file are no valid matrix.
#define ELLECT_INVALID_MATRIX 4

// A file is larger than the limits of the reader.
#define ELLECT_LIMIT 5

// The pattern of an update differs from the prepared one.
#define ELLECT_PATTERN_CHANGED 6

// The format does not apply to the matrix or to its new values.
#define ELLECT_REFUSED 7

// The check of a prepared operator found a wrong product.
#define ELLECT_WRONG_PRODUCT 8

// No device has the given name.
#define ELLECT_UNKNOWN_DEVICE 9

// The device is not on this machine, so nothing can run on it.
#define ELLECT_ABSENT_DEVICE 10

// A driver or a library of the device is missing.
#define ELLECT_DEVICE_UNAVAILABLE 11

// The device has too little free memory.
#define ELLECT_OUT_OF_MEMORY 12

// A kernel or a call of the driver failed.
#define ELLECT_DEVICE_FAILED 13

// The device or this build does not support the operation.
#define ELLECT_UNSUPPORTED 14

// The database of measurements cannot be used.
#define ELLECT_WISDOM 15

// A file cannot be read or written.
#define ELLECT_IO 16

// ellect itself failed; the operation had no effect on other handles.
#define ELLECT_INTERNAL 17

// Another failure, which this version of the interface has no number for.
#define ELLECT_OTHER 18

// Messages between ranks failed, or another rank did.
#define ELLECT_EXCHANGE 19

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Computes y = alpha A x + beta y for vectors in host memory, as `ellect_apply` does, and of the new y
// what `fused` asks for: dot products, and w = w + gamma y.
//
// Products of elements are added in double precision, always in the same order.
//
// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
//
// Fails as `ellect_apply`, with `ELLECT_INVALID_ARGUMENT` for more than 3 dot products, for one with x
// where the matrix is not square, and if a transpose is wanted that was not prepared.
ellect_status ellect_apply_fused(const struct ellect_operator *op,
                                 double alpha,
                                 const void *x,
                                 int64_t x_len,
                                 double beta,
                                 void *y,
                                 int64_t y_len,
                                 const struct ellect_fused *fused);

// Queues y = alpha A x + beta y on a stream, as `ellect_apply_device` does, and of the new y what `fused`
// asks for: dot products, and w = w + gamma y. The vectors of `fused` and its results are in the memory of
// the operator's GPU too.
//
// Some formats have a kernel that computes all in the pass of the product; others need one more
// pass over the vectors. The first call allocates memory and waits; make one before products are captured
// in a graph. Streams and threads: as `ellect_apply_device`.
//
// The vectors stay the caller's, valid until the product has ended.
//
// Fails as `ellect_apply_fused` and `ellect_apply_device`.
ellect_status ellect_apply_fused_device(const struct ellect_operator *op,
                                        double alpha,
                                        const void *x,
                                        int64_t x_len,
                                        double beta,
                                        void *y,
                                        int64_t y_len,
                                        const struct ellect_fused *fused,
                                        void *stream);

// Computes Y = alpha A X + beta Y for `vectors` vectors in host memory, of the operator's value type:
// the columns of X, which has the matrix's number of columns as rows, and of Y, which has its number
// of rows.
//
// `x_order` and `y_order` are `ELLECT_COLUMN_MAJOR` or `ELLECT_ROW_MAJOR`. `x_leading` and
// `y_leading` are the distances in elements between two vectors, or between two rows in row-major
// order; 0 is no gap. Gaps are neither read nor written. X and Y do not overlap. With `beta` 0, Y is
// written and never read. In an operator's permuted basis, each vector is permuted. On a host, several
// formats read the matrix once for up to 8 vectors; on a GPU, `csr` and `hll` do, and the call copies
// the vectors there and back.
//
// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_SHAPE`; on a GPU also with
// failures of the device.
ellect_status ellect_apply_many(const struct ellect_operator *op,
                                int64_t vectors,
                                double alpha,
                                const void *x,
                                int64_t x_leading,
                                int32_t x_order,
                                double beta,
                                void *y,
                                int64_t y_leading,
                                int32_t y_order);

// Makes a matrix from the arrays that `csr` describes, and checks arrays in host memory: one pass
// over the pattern. For arrays on a GPU that are copied, that GPU is current on this thread and a
// tuner of it was opened before.
//
// On success, `*matrix` belongs to the caller, who frees it with `ellect_matrix_destroy`; else it
// is NULL. Thread safety: any thread.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_SHAPE`,
// `ELLECT_INVALID_MATRIX`; on a GPU also `ELLECT_UNSUPPORTED`, `ELLECT_OUT_OF_MEMORY`,
// `ELLECT_DEVICE_FAILED`.
ellect_status ellect_matrix_create(const struct ellect_csr *csr, struct ellect_matrix **matrix);

// Reads a matrix from a file: Matrix Market, SciPy `.npz`, Rutherford-Boeing, PETSc binary, MATLAB or
// JSON, plain or compressed, with values of type `value_type`. Rows are sorted and repeated entries
// are summed; `ellect_matrix_csr` returns the arrays.
//
// On success, `*matrix` belongs to the caller, who frees it with `ellect_matrix_destroy`; else it
// is NULL. Thread safety: any thread.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_IO`, `ELLECT_INVALID_MATRIX`,
// `ELLECT_LIMIT`.
ellect_status ellect_matrix_read(const char *path,
                                 int32_t value_type,
                                 struct ellect_matrix **matrix);

// Describes the arrays of a matrix in host memory, as the matrix uses them now. Set
// `csr->struct_size` before.
//
// The arrays belong to the matrix, or to the caller if they were borrowed; the caller must not change
// them. Columns of a copy have type `ELLECT_I32` and its offsets `ELLECT_I64`. Thread safety: any
// thread.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, and `ELLECT_UNSUPPORTED` for a matrix
// on a GPU or with more than 2^31 - 1 columns.
ellect_status ellect_matrix_csr(const struct ellect_matrix *matrix,
                                struct ellect_csr *csr);

// Frees a matrix; NULL is ignored. Operators that were prepared from it stay valid. Thread safety: no
// other thread uses the matrix.
void ellect_matrix_destroy(struct ellect_matrix *matrix);

// Chooses a storage format for a matrix and converts the matrix. `workload` may be NULL.
//
// The operator owns its layout. A matrix in host memory is no longer needed after the call. Borrowed
// arrays on a GPU stay valid and unchanged as long as the operator exists. If `transposed` of the
// workload is over 0, the operator also multiplies by the transpose, which has a layout of its own
// unless the matrix is symmetric; a matrix on a GPU is copied to the host for this.
//
// On success, `*op` belongs to the caller, who frees it with `ellect_operator_destroy`; else it
// is NULL. Thread safety: any thread; the call may take seconds for a large matrix.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_INVALID_MATRIX` if borrowed
// arrays have changed, `ELLECT_WRONG_PRODUCT` if `verify` finds one, `ELLECT_OUT_OF_MEMORY` and other
// failures of the device.
ellect_status ellect_prepare(const struct ellect_tuner *tuner,
                             const struct ellect_matrix *matrix,
                             const struct ellect_workload *workload,
                             struct ellect_operator **op);

// Computes y = alpha A x + beta y for vectors in host memory, of the operator's value type.
//
// `x` has `x_len` = number of columns, `y` has `y_len` = number of rows; they do not overlap. With
// `beta` 0, y is written and never read. In an operator's permuted basis, x and y are permuted. On a
// GPU, the call copies x and y there and y back, and waits: solvers use `ellect_apply_device`.
//
// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_SHAPE`; on a GPU also with
// failures of the device.
ellect_status ellect_apply(const struct ellect_operator *op,
                           double alpha,
                           const void *x,
                           int64_t x_len,
                           double beta,
                           void *y,
                           int64_t y_len);

// Queues y = alpha A x + beta y on a stream, for vectors in the memory of the operator's GPU, of the
// operator's value type.
//
// `x` has `x_len` = number of columns, `y` has `y_len` = number of rows; they do not overlap. With
// `beta` 0, y is written and never read. `stream` is a `cudaStream_t` or `CUstream` of that GPU; NULL
// is the legacy default stream. The call neither waits nor allocates, and a CUDA graph may capture
// it. Failures of a kernel show when the stream is next waited for.
//
// The vectors stay the caller's, valid until the product has ended; until then the operator is not
// destroyed. Thread safety: one thread at a time; before products move to another stream, those on the
// first one have ended.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT` for an operator on the host,
// `ELLECT_SHAPE`, `ELLECT_UNSUPPORTED` in a build without CUDA, `ELLECT_DEVICE_FAILED`.
ellect_status ellect_apply_device(const struct ellect_operator *op,
                                  double alpha,
                                  const void *x,
                                  int64_t x_len,
                                  double beta,
                                  void *y,
                                  int64_t y_len,
                                  void *stream);

// Replaces the values by `count` values in host memory, of the operator's value type and in the order
// of the matrix's arrays. Waits for products that were queued on a GPU.
//
// The values are copied. Thread safety: any thread; waits for products of other threads.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT` if rows were sorted when the matrix was
// copied, `ELLECT_PATTERN_CHANGED` for another count, and `ELLECT_REFUSED` if the layout relies on a
// property of the values, such as few distinct ones, that these values lack; the operator then keeps
// its old values. On a GPU also with failures of the device.
ellect_status ellect_update_values(struct ellect_operator *op,
                                   const void *values,
                                   int64_t count);

// Replaces the values by `count` values in the memory of the operator's GPU, of the operator's value
// type and in the order of the matrix's arrays. Waits for the work that `stream` has queued, which
// writes the values, and for products.
//
// The values are copied. Thread safety: any thread; waits for products of other threads.
//
// Fails as `ellect_update_values`, with `ELLECT_INVALID_ARGUMENT` for an operator with a transpose, and
// with `ELLECT_UNSUPPORTED` in a build without CUDA.
ellect_status ellect_update_values_device(struct ellect_operator *op,
                                          const void *values,
                                          int64_t count,
                                          void *stream);

// Replaces the values by those of a matrix in host memory, after checking that its pattern is the
// prepared one: one pass over the pattern.
//
// The values are copied. Thread safety: any thread; waits for products of other threads.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT` for values of another type,
// `ELLECT_PATTERN_CHANGED`, `ELLECT_REFUSED` as `ellect_update_values`, `ELLECT_UNSUPPORTED` for a
// matrix on a GPU, and failures of the device.
ellect_status ellect_update_matrix(struct ellect_operator *op, const struct ellect_matrix *matrix);

// Returns the order of the permuted basis: `order[new] = old`, `*len` numbers. In the original basis,
// `*order` is NULL and `*len` is 0.
//
// A solver permutes its right-hand side once, b_new[i] = b[order[i]], and the solution back once,
// x[order[i]] = x_new[i]. The numbers belong to the operator and live as long as it does. Thread
// safety: any thread.
//
// Fails with `ELLECT_NULL_POINTER`.
ellect_status ellect_permutation(const struct ellect_operator *op,
                                 const uint32_t **order,
                                 int64_t *len);

// Returns the choice that led to the operator as JSON, in the form of `ellect_recommend_json`. It ranks
// only the candidates that preparation looked at.
//
// On success, `*json` belongs to the caller, who frees it with `ellect_string_destroy`; else it is
// NULL. Thread safety: any thread.
//
// Fails with `ELLECT_NULL_POINTER`.
ellect_status ellect_choice_json(const struct ellect_operator *op,
                                 char **json);

// Fills in the figures of an operator. Set `info->struct_size` before, and the other fields to 0.
//
// Thread safety: any thread.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`.
ellect_status ellect_operator_describe(const struct ellect_operator *op,
                                       struct ellect_operator_info *info);

// Frees an operator, once products that were queued on a GPU have ended; NULL is ignored. Thread
// safety: no other thread uses the operator.
void ellect_operator_destroy(struct ellect_operator *op);

// Makes this process one of several ranks. Sends nothing yet.
//
// All ranks then make the same calls in the same order: `ellect_rank_prepare`, `ellect_rank_apply`,
// `ellect_rank_sum`, `ellect_rank_update`. An exchange that waits for a rank that has ended should
// fail after some time, because nothing else tells the other ranks.
//
// On success, `*rank` belongs to the caller, who frees it with `ellect_rank_destroy`; else it is NULL.
// Thread safety: any thread.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`.
ellect_status ellect_rank_create(const struct ellect_ranks *ranks,
                                 struct ellect_rank **rank);

// Prepares the own rows of a matrix that the ranks share: `matrix` has all columns of the whole matrix,
// numbered as there; rank 0 has the first rows, rank 1 the next ones and so on. `columns` is the number
// of own columns, that is of own elements of x, in the order of the ranks too; -1 for a square matrix,
// whose columns are divided like its rows. `workload` may be NULL; its basis is the original one.
//
// All ranks call this together; if one of them fails, all do. The operator owns its layout, and the
// matrix is no longer needed after the call.
//
// On success, `*op` belongs to the caller, who frees it with `ellect_rank_operator_destroy`; else it
// is NULL.
//
// Fails as `ellect_prepare`, with `ELLECT_INVALID_ARGUMENT` if the ranks' numbers of rows or columns do
// not fit each other, and with `ELLECT_EXCHANGE` if the exchange or another rank failed.
ellect_status ellect_rank_prepare(const struct ellect_tuner *tuner,
                                  const struct ellect_rank *rank,
                                  const struct ellect_matrix *matrix,
                                  int64_t columns,
                                  const struct ellect_workload *workload,
                                  struct ellect_rank_operator **op);

// Computes the own elements of y = alpha A x + beta y from those of x, in host memory and of the
// operator's value type.
//
// `x` has `x_len` = number of own columns, `y` has `y_len` = number of own rows; they do not overlap.
// With `beta` 0, y is written and never read. All ranks call this together. With an operator on a GPU,
// the call copies x there and y back.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_SHAPE`, `ELLECT_EXCHANGE` if the
// exchange failed or a rank whose elements are needed did, and failures of the device; y is then
// undefined.
ellect_status ellect_rank_apply(const struct ellect_rank_operator *op,
                                double alpha,
                                const void *x,
                                int64_t x_len,
                                double beta,
                                void *y,
                                int64_t y_len);

// Replaces each of `len` numbers by its sum over all ranks, added in their order: all ranks get equal
// bits. All ranks call this together, with as many numbers.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_EXCHANGE`.
ellect_status ellect_rank_sum(const struct ellect_rank *rank,
                              double *numbers,
                              int64_t len);

// Replaces the values by those of a matrix with the same pattern, given as to `ellect_rank_prepare`, in
// host memory. All ranks call this together; ranks that do not fail then have the new values.
//
// Fails as `ellect_update_matrix`, and with `ELLECT_EXCHANGE` if the exchange or another rank failed.
ellect_status ellect_rank_update(struct ellect_rank_operator *op,
                                 const struct ellect_matrix *matrix);

// Fills in the figures of a rank's operator. Set `info->struct_size` before, and the other fields to
// 0. Sends nothing.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`.
ellect_status ellect_rank_describe(const struct ellect_rank_operator *op,
                                   struct ellect_rank_info *info);

// Frees an operator of a rank; NULL is ignored. Sends nothing.
void ellect_rank_operator_destroy(struct ellect_rank_operator *op);

// Frees a rank; NULL is ignored. Its operators stay valid and use its callbacks. Sends nothing.
void ellect_rank_destroy(struct ellect_rank *rank);

// Returns the status of the last call that failed on this thread; `ELLECT_OK` if none did.
//
// Successful calls leave it unchanged. Thread safety: any thread; each has its own last error.
ellect_status ellect_last_error(void);

// Returns the message of the last call that failed on this thread: the fault, the figures found and
// allowed, and what to do. Empty if no call failed.
//
// UTF-8, one line. Owned by the library; valid until the next call on this thread fails.
const char *ellect_last_error_message(void);

// Returns the general remedy for the last error's status; empty if no call failed.
//
// UTF-8, one line. Owned by the library; valid until the next call on this thread fails.
const char *ellect_last_error_remedy(void);

// Returns the name of a status, for instance `"ELLECT_SHAPE"`; `"ELLECT_OTHER"` for an unknown
// number.
//
// Static text that is never freed. Thread safety: any thread.
const char *ellect_status_name(ellect_status status);

// Returns the library's version, for instance `"0.1.0"`.
//
// Static text that is never freed. Thread safety: any thread.
const char *ellect_version(void);

// Computes y = alpha A^T x + beta y for vectors in host memory, as `ellect_apply` does for A: `x` has
// `x_len` = number of rows of A, `y` has `y_len` = number of its columns.
//
// The operator was prepared with `transposed` of `ellect_workload` over 0.
//
// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
//
// Fails as `ellect_apply`, and with `ELLECT_INVALID_ARGUMENT` for an operator without transpose.
ellect_status ellect_apply_transposed(const struct ellect_operator *op,
                                      double alpha,
                                      const void *x,
                                      int64_t x_len,
                                      double beta,
                                      void *y,
                                      int64_t y_len);

// Computes Y = alpha A^T X + beta Y for `vectors` vectors in host memory, as `ellect_apply_many` does
// for A: X has the number of rows of A as rows, Y the number of its columns.
//
// The operator was prepared with `transposed` of `ellect_workload` over 0.
//
// The vectors stay the caller's. Thread safety: on the host, any number of threads at a time.
//
// Fails as `ellect_apply_many`, and with `ELLECT_INVALID_ARGUMENT` for an operator without transpose.
ellect_status ellect_apply_many_transposed(const struct ellect_operator *op,
                                           int64_t vectors,
                                           double alpha,
                                           const void *x,
                                           int64_t x_leading,
                                           int32_t x_order,
                                           double beta,
                                           void *y,
                                           int64_t y_leading,
                                           int32_t y_order);

// Queues y = alpha A^T x + beta y on a stream, as `ellect_apply_device` does for A: `x` has `x_len` =
// number of rows of A, `y` has `y_len` = number of its columns.
//
// The operator was prepared with `transposed` of `ellect_workload` over 0. Streams and threads: products
// with A and with its transpose count as products of one operator.
//
// The vectors stay the caller's, valid until the product has ended.
//
// Fails as `ellect_apply_device`, and with `ELLECT_INVALID_ARGUMENT` for an operator without transpose.
ellect_status ellect_apply_transposed_device(const struct ellect_operator *op,
                                             double alpha,
                                             const void *x,
                                             int64_t x_len,
                                             double beta,
                                             void *y,
                                             int64_t y_len,
                                             void *stream);

// Opens the device of this name: `"cpu"`, `"cuda:0"` for the first GPU of this machine, or a profile
// such as `"h200"`, for which matrices can only be judged. `options` may be NULL.
//
// On success, `*tuner` belongs to the caller, who frees it with `ellect_tuner_destroy`; else it is
// NULL. Thread safety: any thread. On a GPU, its primary context becomes current on this thread.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_UNKNOWN_DEVICE`,
// `ELLECT_DEVICE_UNAVAILABLE`, `ELLECT_DEVICE_FAILED`, `ELLECT_WISDOM`, `ELLECT_IO`.
ellect_status ellect_tuner_open(const char *device,
                                const struct ellect_tuner_options *options,
                                struct ellect_tuner **tuner);

// Returns a JSON array of sentences about models and databases that could not be used.
//
// On success, `*json` belongs to the caller, who frees it with `ellect_string_destroy`; else it is
// NULL. Thread safety: any thread.
//
// Fails with `ELLECT_NULL_POINTER`.
ellect_status ellect_tuner_warnings_json(const struct ellect_tuner *tuner, char **json);

// Returns the ranking of all storage formats for a matrix as JSON: `choice`, `ranking`, `refused`,
// `features`, `explanation` and more, as `POST /recommend` of the service answers. Converts nothing.
// `workload` may be NULL; if its `transposed` is over 0, the key `transposed` holds the answer for the
// transpose, or null where the matrix is symmetric. A matrix on a GPU is copied to the host for this.
//
// On success, `*json` belongs to the caller, who frees it with `ellect_string_destroy`; else it is
// NULL. Thread safety: any thread; the call may take seconds for a large matrix.
//
// Fails with `ELLECT_NULL_POINTER`, `ELLECT_INVALID_ARGUMENT`, `ELLECT_INVALID_MATRIX` if borrowed
// arrays have changed, `ELLECT_ABSENT_DEVICE` if the effort is to time candidates elsewhere, and
// failures of the device.
ellect_status ellect_recommend_json(const struct ellect_tuner *tuner,
                                    const struct ellect_matrix *matrix,
                                    const struct ellect_workload *workload,
                                    char **json);

// Frees a tuner; NULL is ignored. Operators that it prepared stay valid. Thread safety: no other
// thread uses the tuner.
void ellect_tuner_destroy(struct ellect_tuner *tuner);

// Frees a text that a function of this library handed over; NULL is ignored.
void ellect_string_destroy(char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ELLECT_H */
