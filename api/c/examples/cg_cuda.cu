// Solves A x = b with conjugate gradients on a GPU: matrix and vectors are the program's own arrays in
// device memory, products run on its stream. A is the 7-point matrix of a cube, built with 32-bit
// indices. Also times products in a loop and in a CUDA graph. usage: cg_cuda [ROWS-OF-THE-CUBE]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include <ellect.h>

static void check(ellect_status status) {
    if (status != ELLECT_OK) {
        std::fprintf(stderr, "%s: %s\n", ellect_status_name(status), ellect_last_error_message());
        std::exit(1);
    }
}

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

static void require(bool holds, const char *what) {
    if (!holds) {
        std::fprintf(stderr, "failed: %s\n", what);
        std::exit(1);
    }
}

// Adds the dot product of a and b to *sum, which is 0 before.
__global__ void dot_kernel(long n, const double *a, const double *b, double *sum) {
    __shared__ double part[256];
    double own = 0.0;
    for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) {
        own += a[i] * b[i];
    }
    part[threadIdx.x] = own;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(sum, part[0]);
    }
}

// Computes x += alpha p and r -= alpha q.
__global__ void step_kernel(long n, double alpha, const double *p, const double *q, double *x,
                            double *r) {
    for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) {
        x[i] += alpha * p[i];
        r[i] -= alpha * q[i];
    }
}

// Computes p = r + beta p.
__global__ void direction_kernel(long n, double beta, const double *r, double *p) {
    for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) {
        p[i] = r[i] + beta * p[i];
    }
}

// Copies an array to the GPU.
template <class T>
static T *upload(const std::vector<T> &host) {
    T *there = nullptr;
    check(cudaMalloc(&there, host.size() * sizeof(T)));
    check(cudaMemcpy(there, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return there;
}

// The 7-point matrix of a cube in device memory.
struct Matrix {
    int *row_ptr, *col_idx;
    double *values;
    ellect_csr csr;
};

static Matrix poisson(int side) {
    std::vector<int> row_ptr{0}, col_idx;
    std::vector<double> values;
    const int plane = side * side, n = plane * side;
    for (int row = 0; row < n; row++) {
        const int i = row / plane, j = row / side % side, k = row % side;
        const int columns[] = {row - plane, row - side, row - 1, row, row + 1, row + side, row + plane};
        const bool stored[] = {i > 0, j > 0, k > 0, true, k + 1 < side, j + 1 < side, i + 1 < side};
        for (int entry = 0; entry < 7; entry++) {
            if (stored[entry]) {
                col_idx.push_back(columns[entry]);
                values.push_back(entry == 3 ? 6.0 : -1.0);
            }
        }
        row_ptr.push_back(static_cast<int>(col_idx.size()));
    }
    Matrix a{upload(row_ptr), upload(col_idx), upload(values), {}};
    a.csr.struct_size = sizeof a.csr;
    a.csr.nrows = a.csr.ncols = n;
    a.csr.nnz = static_cast<int64_t>(values.size());
    a.csr.row_ptr = a.row_ptr;
    a.csr.col_idx = a.col_idx;
    a.csr.values = a.values;
    a.csr.row_ptr_type = a.csr.col_idx_type = ELLECT_I32;
    a.csr.value_type = ELLECT_F64;
    a.csr.memory = ELLECT_DEVICE;
    return a;
}

static ellect_operator *prepare(const ellect_tuner *tuner, const ellect_csr &csr, int64_t spmvs) {
    ellect_matrix *matrix;
    ellect_operator *op;
    ellect_workload workload{};
    workload.struct_size = sizeof workload;
    workload.spmvs = spmvs;
    check(ellect_matrix_create(&csr, &matrix));
    check(ellect_prepare(tuner, matrix, &workload, &op));
    ellect_matrix_destroy(matrix);
    return op;
}

// Vectors of one length, and the scalar of the dot products, on the GPU.
struct Solver {
    long n;
    cudaStream_t stream;
    double *sum;

    double dot(const double *a, const double *b) const {
        double host;
        check(cudaMemsetAsync(sum, 0, sizeof host, stream));
        dot_kernel<<<512, 256, 0, stream>>>(n, a, b, sum);
        check(cudaMemcpyAsync(&host, sum, sizeof host, cudaMemcpyDeviceToHost, stream));
        check(cudaStreamSynchronize(stream));
        return host;
    }

    // Solves A x = b from x = 0; v holds three scratch vectors. Returns the number of iterations.
    int solve(const ellect_operator *a, const double *b, double *x, double *v) const {
        double *r = v, *p = v + n, *q = v + 2 * n;
        check(cudaMemsetAsync(x, 0, n * sizeof *x, stream));
        check(cudaMemcpyAsync(r, b, n * sizeof *r, cudaMemcpyDeviceToDevice, stream));
        check(cudaMemcpyAsync(p, b, n * sizeof *p, cudaMemcpyDeviceToDevice, stream));
        double rr = dot(r, r);
        const double enough = 1e-20 * rr;
        int iterations = 0;
        for (; rr > enough && iterations < 10000; iterations++) {
            check(ellect_apply_device(a, 1.0, p, n, 0.0, q, n, stream));
            step_kernel<<<512, 256, 0, stream>>>(n, rr / dot(p, q), p, q, x, r);
            const double next = dot(r, r);
            direction_kernel<<<512, 256, 0, stream>>>(n, next / rr, r, p);
            rr = next;
        }
        return iterations;
    }
};

// Times `count` calls of `work` on the stream after a first one, in microseconds a call.
template <class Work>
static double us_of(cudaStream_t stream, int count, Work work) {
    cudaEvent_t start, end;
    float ms = 0;
    check(cudaEventCreate(&start));
    check(cudaEventCreate(&end));
    work();
    check(cudaEventRecord(start, stream));
    for (int i = 0; i < count; i++) {
        work();
    }
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&ms, start, end));
    check(cudaEventDestroy(start));
    check(cudaEventDestroy(end));
    return 1e3 * ms / count;
}

// Times products in a loop and in a graph of 100, and checks the graph's result.
static void time_products(const Solver &solver, const ellect_operator *a, const double *x, double *y) {
    const long n = solver.n;
    const cudaStream_t stream = solver.stream;
    const auto product = [&] { check(ellect_apply_device(a, 1.0, x, n, 0.0, y, n, stream)); };
    const double loop = us_of(stream, 1000, product);
    const double before = solver.dot(y, y);
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    check(cudaMemsetAsync(y, 0, n * sizeof *y, stream));
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 100; i++) {
        product();
    }
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&replay, graph, 0));
    const double in_graph = us_of(stream, 10, [&] { check(cudaGraphLaunch(replay, stream)); }) / 100;
    require(std::fabs(solver.dot(y, y) - before) <= 1e-12 * before, "the graph multiplies right");
    std::printf("%ld rows: %.2f us a product in a loop, %.2f us in a graph\n", n, loop, in_graph);
    check(cudaGraphExecDestroy(replay));
    check(cudaGraphDestroy(graph));
}

int main(int argc, char **argv) {
    const int side = argc > 1 ? std::atoi(argv[1]) : 100;
    require(side >= 1 && side <= 600, "the cube has 1 to 600 rows");
    ellect_tuner *tuner;
    check(cudaSetDevice(0));
    check(ellect_tuner_open("cuda:0", nullptr, &tuner));
    Matrix a = poisson(side);
    const long n = a.csr.nrows;
    Solver solver{n, nullptr, nullptr};
    check(cudaStreamCreateWithFlags(&solver.stream, cudaStreamNonBlocking));
    check(cudaMalloc(&solver.sum, sizeof *solver.sum));
    std::vector<double> exact(n), solution(n);
    for (long i = 0; i < n; i++) {
        exact[i] = static_cast<double>(i % 7);
    }
    double *e = upload(exact), *b = upload(exact), *x = upload(exact), *v;
    check(cudaMalloc(&v, 3 * n * sizeof *v));

    // One operator borrows the arrays, the other copies them and may outlive them.
    ellect_operator *first = prepare(tuner, a.csr, 1000);
    a.csr.ownership = ELLECT_COPY;
    a.csr.check = ELLECT_TRUST;
    ellect_operator *op = prepare(tuner, a.csr, 1000000);
    check(ellect_apply_device(first, 1.0, e, n, 0.0, b, n, solver.stream));
    check(cudaStreamSynchronize(solver.stream));
    ellect_operator_destroy(first);
    check(cudaFree(a.row_ptr));
    check(cudaFree(a.col_idx));

    const int iterations = solver.solve(op, b, x, v);
    check(cudaMemcpy(solution.data(), x, n * sizeof *x, cudaMemcpyDeviceToHost));
    double largest = 0.0;
    for (long i = 0; i < n; i++) {
        largest = std::fmax(largest, std::fabs(solution[i] - exact[i]));
    }
    ellect_operator_info info{};
    info.struct_size = sizeof info;
    check(ellect_operator_describe(op, &info));
    require(info.memory == ELLECT_DEVICE, "the layout is on the GPU");
    std::printf("%s: %d iterations, largest error %.1e\n", info.candidate, iterations, largest);
    require(largest < 1e-6, "the solution is right");
    time_products(solver, op, e, v);

    // New values from the GPU: those of 2 A are the old ones doubled.
    const double before = solver.dot(b, b);
    direction_kernel<<<512, 256, 0, solver.stream>>>(a.csr.nnz, 1.0, a.values, a.values);
    check(ellect_update_values_device(op, a.values, a.csr.nnz, solver.stream));
    check(cudaFree(a.values));
    check(ellect_apply_device(op, 1.0, e, n, 0.0, v, n, solver.stream));
    require(std::fabs(solver.dot(v, v) - 4 * before) <= 1e-12 * before, "new values are used");
    require(ellect_apply_device(op, 1.0, e, n, 0.0, e, n, solver.stream) == ELLECT_INVALID_ARGUMENT,
            "vectors that overlap are refused");
    require(ellect_apply_device(op, 1.0, e, n - 1, 0.0, v, n, solver.stream) == ELLECT_SHAPE,
            "short vectors are refused");

    ellect_operator_destroy(op);
    ellect_tuner_destroy(tuner);
    for (double *vector : {e, b, x, v, solver.sum}) {
        check(cudaFree(vector));
    }
    check(cudaStreamDestroy(solver.stream));
    return 0;
}
