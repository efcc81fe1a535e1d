// C++17 interface of ellect, header-only over ellect.h: objects that free themselves, typed vectors,
// exceptions.
//
//     ellect::tuner tuner("cpu");
//     auto a = ellect::matrix<double>::borrow(nrows, ncols, row_ptr, col_idx, values);
//     auto op = tuner.prepare(a, ellect::workload(10000));
//     op.apply(1.0, x, 0.0, y);                     // y = A x
//
// Thread safety and lifetimes are those of the C functions.
#ifndef ELLECT_HPP
#define ELLECT_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "ellect.h"

namespace ellect {

// A failed call: what() is the message of the library.
class error : public std::runtime_error {
public:
    explicit error(ellect_status status)
        : std::runtime_error(ellect_last_error_message()), status_(status),
          remedy_(ellect_last_error_remedy()) {}
    ellect_status status() const noexcept { return status_; }
    const std::string &remedy() const noexcept { return remedy_; }

private:
    ellect_status status_;
    std::string remedy_;
};

// Throws unless a call succeeded.
inline void check(ellect_status status) {
    if (status != ELLECT_OK) {
        throw error(status);
    }
}

namespace detail {

template <class T>
constexpr std::int32_t value_type() {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                  "values are float or double");
    return std::is_same_v<T, float> ? ELLECT_F32 : ELLECT_F64;
}

template <class I>
constexpr std::int32_t index_type() {
    static_assert(std::is_integral_v<I> && std::is_signed_v<I> && (sizeof(I) == 4 || sizeof(I) == 8),
                  "indices are signed integers of 32 or 64 bits");
    return sizeof(I) == 4 ? ELLECT_I32 : ELLECT_I64;
}

struct destroy {
    void operator()(ellect_matrix *object) const noexcept { ellect_matrix_destroy(object); }
    void operator()(ellect_operator *object) const noexcept { ellect_operator_destroy(object); }
    void operator()(ellect_tuner *object) const noexcept { ellect_tuner_destroy(object); }
    void operator()(char *text) const noexcept { ellect_string_destroy(text); }
};

template <class H>
using handle = std::unique_ptr<H, destroy>;

inline std::string text_of(char *text) {
    handle<char> owned(text);
    return std::string(owned.get());
}

}  // namespace detail

// A workload with a number of products; 0 is the default number. Its other fields may be set.
inline ellect_workload workload(std::int64_t spmvs = 0) {
    ellect_workload workload{};
    workload.struct_size = sizeof workload;
    workload.spmvs = spmvs;
    return workload;
}

// Nothing to compute besides a product; its fields are to be set.
inline ellect_fused fused() {
    ellect_fused fused{};
    fused.struct_size = sizeof fused;
    return fused;
}

// A CSR matrix with values of type T.
template <class T>
class matrix {
public:
    // Makes a matrix from a descriptor, whose size and value type are filled in.
    explicit matrix(ellect_csr csr) {
        csr.struct_size = sizeof csr;
        csr.value_type = detail::value_type<T>();
        ellect_matrix *made = nullptr;
        check(ellect_matrix_create(&csr, &made));
        handle_.reset(made);
    }

    // Uses containers in host memory, which must outlive the matrix.
    template <class Offsets, class Columns, class Values>
    static matrix borrow(std::int64_t nrows, std::int64_t ncols, const Offsets &row_ptr,
                         const Columns &col_idx, const Values &values) {
        return from(nrows, ncols, row_ptr, col_idx, values, ELLECT_BORROW);
    }

    // Copies containers in host memory; sorts rows and sums repeated entries.
    template <class Offsets, class Columns, class Values>
    static matrix copy(std::int64_t nrows, std::int64_t ncols, const Offsets &row_ptr,
                       const Columns &col_idx, const Values &values) {
        return from(nrows, ncols, row_ptr, col_idx, values, ELLECT_COPY);
    }

    // Reads a file.
    static matrix read(const std::string &path) {
        ellect_matrix *made = nullptr;
        check(ellect_matrix_read(path.c_str(), detail::value_type<T>(), &made));
        return matrix(made);
    }

    // Describes the arrays, which live as long as the matrix.
    ellect_csr csr() const {
        ellect_csr csr{};
        csr.struct_size = sizeof csr;
        check(ellect_matrix_csr(get(), &csr));
        return csr;
    }

    ellect_matrix *get() const noexcept { return handle_.get(); }

private:
    explicit matrix(ellect_matrix *made) : handle_(made) {}

    template <class Offsets, class Columns, class Values>
    static matrix from(std::int64_t nrows, std::int64_t ncols, const Offsets &row_ptr,
                       const Columns &col_idx, const Values &values, std::int32_t ownership) {
        using offset = std::remove_cv_t<std::remove_reference_t<decltype(*std::data(row_ptr))>>;
        using column = std::remove_cv_t<std::remove_reference_t<decltype(*std::data(col_idx))>>;
        static_assert(std::is_convertible_v<decltype(std::data(values)), const T *>,
                      "the values have another type than the matrix");
        if (static_cast<std::int64_t>(std::size(row_ptr)) != nrows + 1 ||
            std::size(col_idx) != std::size(values)) {
            throw std::invalid_argument("row_ptr needs nrows + 1 entries, col_idx and values as many "
                                        "as each other");
        }
        ellect_csr csr{};
        csr.nrows = nrows;
        csr.ncols = ncols;
        csr.nnz = static_cast<std::int64_t>(std::size(values));
        csr.row_ptr = std::data(row_ptr);
        csr.col_idx = std::data(col_idx);
        csr.values = std::data(values);
        csr.row_ptr_type = detail::index_type<offset>();
        csr.col_idx_type = detail::index_type<column>();
        csr.ownership = ownership;
        return matrix(csr);
    }

    detail::handle<ellect_matrix> handle_;
};

// An operator with values and vectors of type T; ellect::tuner prepares it.
template <class T>
class prepared {
public:
    explicit prepared(ellect_operator *made) : handle_(made) {}

    // Computes y = alpha A x + beta y for containers in host memory.
    template <class X, class Y>
    void apply(T alpha, const X &x, T beta, Y &&y) const {
        one(ellect_apply, alpha, x, beta, y);
    }

    // Computes y = alpha A^T x + beta y for containers in host memory, if `transposed` of the workload
    // was over 0.
    template <class X, class Y>
    void apply_transposed(T alpha, const X &x, T beta, Y &&y) const {
        one(ellect_apply_transposed, alpha, x, beta, y);
    }

    // Computes y = alpha A x + beta y for containers in host memory, and of the new y what `fused` asks for
    // (ellect::fused() asks for nothing); its vectors and results are of type T.
    template <class X, class Y>
    void apply_fused(T alpha, const X &x, T beta, Y &&y, const ellect_fused &fused) const {
        const auto product = [&fused](auto... arguments) {
            return ellect_apply_fused(arguments..., &fused);
        };
        one(product, alpha, x, beta, y);
    }

    // Computes Y = alpha A X + beta Y for containers in host memory that hold several vectors without
    // gaps, both in this order.
    template <class X, class Y>
    void apply_many(std::int64_t vectors, T alpha, const X &x, T beta, Y &&y,
                    std::int32_t order = ELLECT_COLUMN_MAJOR) const {
        const ellect_operator_info sizes = info();
        several(ellect_apply_many, vectors, alpha, x, sizes.ncols, beta, y, sizes.nrows, order);
    }

    // Computes Y = alpha A^T X + beta Y likewise, if `transposed` of the workload was over 0.
    template <class X, class Y>
    void apply_many_transposed(std::int64_t vectors, T alpha, const X &x, T beta, Y &&y,
                               std::int32_t order = ELLECT_COLUMN_MAJOR) const {
        const ellect_operator_info sizes = info();
        several(ellect_apply_many_transposed, vectors, alpha, x, sizes.nrows, beta, y, sizes.ncols,
                order);
    }

    // As ellect_apply_many, with leading dimensions and orders.
    void apply_many(std::int64_t vectors, T alpha, const T *x, std::int64_t x_leading,
                    std::int32_t x_order, T beta, T *y, std::int64_t y_leading,
                    std::int32_t y_order) const {
        check(ellect_apply_many(get(), vectors, static_cast<double>(alpha), x, x_leading, x_order,
                                static_cast<double>(beta), y, y_leading, y_order));
    }

    // Queues y = alpha A x + beta y for vectors on the operator's GPU.
    void apply_device(T alpha, const T *x, std::int64_t x_len, T beta, T *y, std::int64_t y_len,
                      void *stream) const {
        check(ellect_apply_device(get(), static_cast<double>(alpha), x, x_len,
                                  static_cast<double>(beta), y, y_len, stream));
    }

    // Queues y = alpha A x + beta y, and of the new y what `fused` asks for, for vectors on the operator's
    // GPU.
    void apply_fused_device(T alpha, const T *x, std::int64_t x_len, T beta, T *y, std::int64_t y_len,
                            const ellect_fused &fused, void *stream) const {
        check(ellect_apply_fused_device(get(), static_cast<double>(alpha), x, x_len,
                                        static_cast<double>(beta), y, y_len, &fused, stream));
    }

    // Queues y = alpha A^T x + beta y for vectors on the operator's GPU.
    void apply_transposed_device(T alpha, const T *x, std::int64_t x_len, T beta, T *y,
                                 std::int64_t y_len, void *stream) const {
        check(ellect_apply_transposed_device(get(), static_cast<double>(alpha), x, x_len,
                                             static_cast<double>(beta), y, y_len, stream));
    }

    // Replaces the values by those of a container in host memory.
    template <class Values>
    void update_values(const Values &values) {
        static_assert(std::is_convertible_v<decltype(std::data(values)), const T *>,
                      "the values have another type than the operator");
        check(ellect_update_values(get(), std::data(values), length(values)));
    }

    // Replaces the values by values on the operator's GPU.
    void update_values_device(const T *values, std::int64_t count, void *stream) {
        check(ellect_update_values_device(get(), values, count, stream));
    }

    // Replaces the values by those of a matrix with the same pattern.
    void update(const matrix<T> &matrix) { check(ellect_update_matrix(get(), matrix.get())); }

    // The order of the permuted basis, order[new] = old: its address and its length, 0 in the
    // original basis.
    std::pair<const std::uint32_t *, std::int64_t> permutation() const {
        std::pair<const std::uint32_t *, std::int64_t> order{nullptr, 0};
        check(ellect_permutation(get(), &order.first, &order.second));
        return order;
    }

    std::string choice_json() const {
        char *json = nullptr;
        check(ellect_choice_json(get(), &json));
        return detail::text_of(json);
    }

    // Figures of the operator; their text lives as long as the operator.
    ellect_operator_info info() const {
        ellect_operator_info info{};
        info.struct_size = sizeof info;
        check(ellect_operator_describe(get(), &info));
        return info;
    }

    ellect_operator *get() const noexcept { return handle_.get(); }

private:
    template <class F, class X, class Y>
    void one(F product, T alpha, const X &x, T beta, Y &y) const {
        static_assert(std::is_convertible_v<decltype(std::data(x)), const T *> &&
                          std::is_convertible_v<decltype(std::data(y)), T *>,
                      "the vectors have another type than the operator");
        check(product(get(), static_cast<double>(alpha), std::data(x), length(x),
                      static_cast<double>(beta), std::data(y), length(y)));
    }

    template <class F, class X, class Y>
    void several(F product, std::int64_t vectors, T alpha, const X &x, std::int64_t x_rows, T beta,
                 Y &y, std::int64_t y_rows, std::int32_t order) const {
        static_assert(std::is_convertible_v<decltype(std::data(x)), const T *> &&
                          std::is_convertible_v<decltype(std::data(y)), T *>,
                      "the vectors have another type than the operator");
        const auto holds = [vectors](std::int64_t length, std::int64_t rows) {
            return vectors > 0 && length % vectors == 0 && length / vectors == rows;
        };
        if (vectors != 0 && !(holds(length(x), x_rows) && holds(length(y), y_rows))) {
            throw std::invalid_argument("x needs the number of columns times vectors elements, y the "
                                        "number of rows times vectors; with the transpose the other way "
                                        "round");
        }
        check(product(get(), vectors, static_cast<double>(alpha), std::data(x), 0, order,
                      static_cast<double>(beta), std::data(y), 0, order));
    }

    template <class C>
    static std::int64_t length(const C &container) {
        return static_cast<std::int64_t>(std::size(container));
    }

    detail::handle<ellect_operator> handle_;
};

// A tuner of one device.
class tuner {
public:
    // Opens a device with the user's folder of models and measurements.
    explicit tuner(const std::string &device) : tuner(device, nullptr) {}

    // Opens a device with the folders of these options.
    tuner(const std::string &device, const ellect_tuner_options &options)
        : tuner(device, &options) {}

    template <class T>
    prepared<T> prepare(const matrix<T> &matrix,
                        const ellect_workload &workload = ellect::workload()) const {
        ellect_operator *made = nullptr;
        check(ellect_prepare(get(), matrix.get(), &workload, &made));
        return prepared<T>(made);
    }

    template <class T>
    std::string recommend_json(const matrix<T> &matrix,
                               const ellect_workload &workload = ellect::workload()) const {
        char *json = nullptr;
        check(ellect_recommend_json(get(), matrix.get(), &workload, &json));
        return detail::text_of(json);
    }

    std::string warnings_json() const {
        char *json = nullptr;
        check(ellect_tuner_warnings_json(get(), &json));
        return detail::text_of(json);
    }

    ellect_tuner *get() const noexcept { return handle_.get(); }

private:
    tuner(const std::string &device, const ellect_tuner_options *options) {
        ellect_tuner *opened = nullptr;
        check(ellect_tuner_open(device.c_str(), options, &opened));
        handle_.reset(opened);
    }

    detail::handle<ellect_tuner> handle_;
};

}  // namespace ellect

#endif  // ELLECT_HPP
