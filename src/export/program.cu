@HEADING@
@INCLUDES@

// ---- The kernels ---------------------------------------------------------------------------------
@KERNELS@
// ---- The layout and the product ------------------------------------------------------------------
using Value = @VALUE@;

// An address on the device, as a pointer of the type that a kernel takes.
struct Address {
    void* at = nullptr;
    template <class P> operator P*() const { return static_cast<P*>(at); }
};

// The arrays of the layout, and the memory in which a product keeps sums. Counters are 0 before and
// after each product.
struct Layout {
    @MEMBERS@
};

static void check(cudaError_t code, const char* what) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(code));
    std::exit(2);
}

// True if all blocks of a launch of this kernel can be resident on the GPU at once.
template <class Kernel> static bool all_resident(Kernel kernel, int block, size_t shared, unsigned grid) {
    int each = 0, processors = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, block, shared), "occupancy");
    check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "the GPU");
    return grid <= uint64_t(each) * uint64_t(processors);
}

// Allows a kernel this much dynamic shared memory.
template <class Kernel> static bool allow_shared(Kernel kernel, int bytes) {
    const auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    check(cudaFuncSetAttribute(kernel, most, bytes), "asking for shared memory");
    return true;
}

// Queues y = alpha A x + beta y; with beta = 0, y is written and never read.
static void product(const Layout& at, const Value* x, Value* y, Value alpha, Value beta,
                    cudaStream_t stream) {
@LAUNCHES@}

// ---- The matrix, for the check -------------------------------------------------------------------
static const uint64_t nrows = @NROWS@, ncols = @NCOLS@, nnz = @NNZ@;
static const uint64_t DIGEST = @DIGEST@;
static const char* const DATA = @DATA@;
// Bytes of each array in the file, each filled up to a multiple of 8: the arrays of the layout, then
// row pointers, columns and values of the matrix in CSR, and the order of a permuted basis.
static const uint64_t SECTIONS[] = {@SECTIONS@};
static const uint64_t STORED = @STORED@;
static const uint64_t SCRATCH[] = {@SCRATCH@};
static const uint64_t COUNTERS = @COUNTERS@;

static Address allocate(uint64_t bytes) {
    Address address;
    check(cudaMalloc(&address.at, bytes == 0 ? 8 : bytes), "allocating memory on the GPU");
    return address;
}

template <class T> static std::vector<T> taken(const std::vector<char>& bytes) {
    std::vector<T> list(bytes.size() / sizeof(T));
    std::memcpy(list.data(), bytes.data(), list.size() * sizeof(T));
    return list;
}

// Reads the file that was written with this program.
static std::vector<std::vector<char>> read_sections(const char* name) {
    std::FILE* file = std::fopen(name, "rb");
    if (!file) {
        std::fprintf(stderr, "error: cannot open %s; name the file as the first argument\n", name);
        std::exit(2);
    }
    uint64_t head[2] = {}, hash = 0xcbf29ce484222325ull;
    bool whole = std::fread(head, 8, 2, file) == 2 && std::memcmp(head, "ELLECTL1", 8) == 0;
    std::vector<std::vector<char>> sections;
    for (uint64_t bytes : SECTIONS) {
        std::vector<char> section((bytes + 7) / 8 * 8);
        whole = whole && std::fread(section.data(), 1, section.size(), file) == section.size();
        for (size_t k = 0; k < section.size(); k += 8) {
            uint64_t word;
            std::memcpy(&word, section.data() + k, 8);
            hash = (hash ^ word) * 0x100000001b3ull;
        }
        section.resize(bytes);
        sections.push_back(std::move(section));
    }
    std::fclose(file);
    if (!whole || hash != DIGEST || head[1] != DIGEST) {
        std::fprintf(stderr, "error: %s is damaged or belongs to another program\n", name);
        std::exit(2);
    }
    return sections;
}

// Seeded values with magnitudes from 1/16 to 1 and both signs, exact in single precision.
static std::vector<Value> vector_of(uint64_t length, uint64_t seed) {
    const auto mix = [](uint64_t z) {
        z += 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    };
    std::vector<Value> list(length);
    for (uint64_t i = 0; i < length; i++) {
        const uint64_t bits = mix(seed ^ mix(i));
        const double size = double(bits % 961 + 64) / 1024;
        list[i] = Value(bits >> 63 ? -size : size);
    }
    return list;
}

static std::vector<Value> permuted(const std::vector<Value>& list, const std::vector<uint32_t>& order) {
    std::vector<Value> result(list);
    for (size_t i = 0; i < order.size(); i++) result[i] = list[order[i]];
    return result;
}

// The matrix in CSR, and the order of a permuted basis (empty in the original basis).
struct Matrix {
    std::vector<uint64_t> row_ptr;
    std::vector<uint32_t> col_idx;
    std::vector<Value> values;
    std::vector<uint32_t> order;
};

// Returns how many times the bound on rounding errors the worst row is away from CSR in f64.
static double worst_row(const Matrix& csr, Value alpha, const std::vector<Value>& x, Value beta,
                        const std::vector<Value>& before, const std::vector<Value>& y) {
    double worst = 0;
    for (uint64_t k = 0; k < nrows; k++) {
        const uint64_t row = csr.order.empty() ? k : csr.order[k];
        double sum = 0, magnitude = 0;
        for (uint64_t i = csr.row_ptr[row]; i < csr.row_ptr[row + 1]; i++) {
            const double term = double(csr.values[i]) * double(x[csr.col_idx[i]]);
            sum += term, magnitude += std::fabs(term);
        }
        const double old = beta == 0 ? 0 : double(beta) * double(before[row]);
        const double terms = double(csr.row_ptr[row + 1] - csr.row_ptr[row]) + 4;
        const double size = std::fabs(double(alpha)) * magnitude + std::fabs(old);
        const double bound = terms * (double(std::numeric_limits<Value>::epsilon()) * size +
                                      double(std::numeric_limits<Value>::min()));
        const double away = std::fabs(double(alpha) * sum + old - double(y[k])) / bound;
        if (!(away <= worst)) worst = std::isnan(away) ? INFINITY : away;
    }
    return worst;
}

// Compares products with CSR on the host; returns true if all are right.
static bool is_right(const Layout& layout, const Matrix& csr, Address x, Address y) {
    const std::vector<Value> host_x = vector_of(ncols, 1), before = vector_of(nrows, 2);
    const std::vector<Value> own_x = permuted(host_x, csr.order), old = permuted(before, csr.order);
    std::vector<Value> got(nrows);
    check(cudaMemcpy(x.at, own_x.data(), ncols * sizeof(Value), cudaMemcpyHostToDevice), "x");
    const Value factors[3][2] = {{1, 0}, {Value(1.5), Value(-0.5)}, {1, 0}};
    double worst = 0;
    for (const auto& factor : factors) {
        // With beta = 0, y is not read: it holds numbers that are none.
        if (factor[1] == 0) check(cudaMemset(y.at, 0xff, nrows * sizeof(Value)), "y");
        else check(cudaMemcpy(y.at, old.data(), nrows * sizeof(Value), cudaMemcpyHostToDevice), "y");
        product(layout, x, y, factor[0], factor[1], 0);
        check(cudaGetLastError(), "launching the product");
        check(cudaMemcpy(got.data(), y.at, nrows * sizeof(Value), cudaMemcpyDeviceToHost), "y");
        worst = std::fmax(worst, worst_row(csr, factor[0], host_x, factor[1], before, got));
    }
    const bool right = worst <= 1;
    std::printf("check: the worst row is at %.3f of the rounding bound: %s\n", worst,
                right ? "right" : "WRONG");
    return right;
}

static double seconds(const Layout& layout, Address x, Address y, int products) {
    cudaEvent_t start, end;
    check(cudaEventCreate(&start), "an event");
    check(cudaEventCreate(&end), "an event");
    check(cudaEventRecord(start), "an event");
    for (int k = 0; k < products; k++) product(layout, x, y, 1, 0, 0);
    check(cudaEventRecord(end), "an event");
    check(cudaEventSynchronize(end), "the product");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start, end), "an event");
    check(cudaEventDestroy(start), "an event");
    check(cudaEventDestroy(end), "an event");
    return double(milliseconds) / 1e3;
}

// Times products back to back: the median of 30 samples of about 5 ms.
static void time_products(const Layout& layout, Address x, Address y) {
    seconds(layout, x, y, 5);
    const double one = seconds(layout, x, y, 10) / 10;
    const int products = int(std::fmin(std::fmax(5e-3 / one, 1), 1e5));
    std::vector<double> samples;
    for (int k = 0; k < 30; k++) samples.push_back(seconds(layout, x, y, products) / products);
    std::sort(samples.begin(), samples.end());
    uint64_t bytes = 0;
    for (uint64_t k = 0; k < STORED; k++) bytes += SECTIONS[k];
    const double median = samples[samples.size() / 2];
    std::printf("product: %.2f us (median; least %.2f us), %.1f Gflop/s, %.3f GB of arrays at %.0f "
                "GB/s\n",
                median * 1e6, samples[0] * 1e6, 2 * double(nnz) / median / 1e9, double(bytes) / 1e9,
                double(bytes) / median / 1e9);
}

int main(int argc, char** argv) {
    std::vector<std::vector<char>> sections = read_sections(argc > 1 ? argv[1] : DATA);
    const Matrix csr = {taken<uint64_t>(sections[STORED]), taken<uint32_t>(sections[STORED + 1]),
                        taken<Value>(sections[STORED + 2]), taken<uint32_t>(sections[STORED + 3])};
    Layout layout;
    @FILL@
    for (uint64_t k = 0; k < STORED; k++) {
        *arrays[k] = allocate(SECTIONS[k]);
        const auto& own = sections[k];
        check(cudaMemcpy(arrays[k]->at, own.data(), own.size(), cudaMemcpyHostToDevice), "an array");
    }
    for (size_t k = 0; k + 1 < sizeof(SCRATCH) / sizeof(SCRATCH[0]); k++)
        *scratch[k] = allocate(SCRATCH[k]);
    layout.counters = allocate(COUNTERS);
    check(cudaMemset(layout.counters.at, 0, COUNTERS), "counters");
    const Address x = allocate(ncols * sizeof(Value)), y = allocate(nrows * sizeof(Value));
    const bool right = is_right(layout, csr, x, y);
    if (right) time_products(layout, x, y);
    return right ? 0 : 1;
}
