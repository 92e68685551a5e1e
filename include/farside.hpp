// Farside for C++17 and later: owners of spaces, memory and jobs over farside.h. Header only.
//
//     farside::space space;
//     farside::buffer<float> x(space, 1000, "x"), y(space, 1000, "y");
//     std::fill(x.begin(), x.end(), 1.5f);
//     space.call("farside.saxpy", farside::on(1), 2.0f, farside::read(x), farside::write(y));
//
// What fails throws farside::error. A buffer is a range of values, valid at the same address on every card, and a
// std::span where there are such. Buffers and jobs may outlive their space, and do no more then.
#ifndef FARSIDE_HPP
#define FARSIDE_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "farside.h"

namespace farside {

// A call that failed.
class error : public std::runtime_error {
public:
    error(farside_status how, const char *text) : std::runtime_error(text), status_(how) {}
    farside_status status() const noexcept { return status_; }

private:
    farside_status status_;
};

inline void check(farside_status status)
{
    if (status != FARSIDE_STATUS_OK)
        throw error(status, farside_last_error());
}

// The host's memory, where a card's number is asked for.
inline constexpr std::int32_t host = FARSIDE_HOST;

// What kernels are lent: any range of values in memory of the space.
namespace detail {

template <class Range> farside_argument memory(std::uint32_t kind, const Range &range)
{
    using value = std::remove_cv_t<std::remove_reference_t<decltype(*std::data(range))>>;
    static_assert(std::is_trivially_copyable_v<value>, "kernels take plain data");
    farside_argument argument;
    argument.kind = kind;
    argument.element = sizeof(value);
    argument.word = reinterpret_cast<std::uintptr_t>(std::data(range));
    argument.bytes = std::size(range) * sizeof(value);
    return argument;
}

inline farside_argument argument(const farside_argument &given) { return given; }

// What number a type is: a kernel that wants a float is given no integer of the same size.
template <class Value> constexpr std::uint64_t number()
{
    if (std::is_floating_point_v<Value>)
        return FARSIDE_FLOAT;
    return std::is_integral_v<Value> || std::is_enum_v<Value> ? FARSIDE_INTEGER : 0;
}

template <class Value, class = std::enable_if_t<std::is_trivially_copyable_v<Value>>>
farside_argument argument(const Value &value)
{
    static_assert(sizeof(Value) <= 8, "a value has at most eight bytes; lend memory for more");
    farside_argument argument;
    argument.kind = FARSIDE_VALUE;
    argument.element = sizeof(Value);
    argument.word = 0;
    argument.bytes = number<Value>();
    std::memcpy(&argument.word, &value, sizeof(Value));
    return argument;
}

} // namespace detail

// Lent to be read: nobody writes it meanwhile.
template <class Range> farside_argument read(const Range &range)
{
    return detail::memory(FARSIDE_READ, range);
}

// Lent to be read and written: nobody else uses it meanwhile.
template <class Range> farside_argument write(Range &&range)
{
    static_assert(!std::is_const_v<std::remove_reference_t<decltype(*std::data(range))>>,
                  "what is lent to be written is not const");
    return detail::memory(FARSIDE_WRITE, range);
}

// Words that all use at the same time, by atomic operations.
template <class Range> farside_argument shared(Range &&range)
{
    static_assert(!std::is_const_v<std::remove_reference_t<decltype(*std::data(range))>>,
                  "what is lent to be written is not const");
    return detail::memory(FARSIDE_SHARED, range);
}

// A kernel that was launched. Given back, it goes on.
class job {
public:
    job(job &&other) noexcept : job_(std::exchange(other.job_, nullptr)) {}
    job &operator=(job &&other) noexcept
    {
        std::swap(job_, other.job_);
        return *this;
    }
    ~job() { farside_job_free(job_); }

    // Waits for its end, and gives what it returned. Throws if it failed.
    std::uint64_t wait() const
    {
        std::uint64_t result = 0;
        check(farside_job_wait(job_, -1, &result));
        return result;
    }

    // The same, but gives nothing if it still runs after that time.
    std::optional<std::uint64_t> wait_for(std::chrono::nanoseconds limit) const
    {
        std::uint64_t result = 0;
        farside_status status = farside_job_wait(job_, limit.count() < 0 ? 0 : limit.count(), &result);
        if (status == FARSIDE_STATUS_RUNNING)
            return std::nullopt;
        check(status);
        return result;
    }

    void cancel() const { check(farside_job_cancel(job_)); }
    const farside_job *get() const noexcept { return job_; }

private:
    friend class space;
    explicit job(farside_job *started) : job_(started) {}
    farside_job *job_;
};

// How a kernel is launched: farside::on(1).after(other).limit(std::chrono::seconds(1)).
class on {
public:
    explicit on(std::uint32_t card) : launch_ FARSIDE_LAUNCH_INIT { launch_.card = card; }

    on &stream(std::uint64_t number)
    {
        launch_.stream = number;
        return *this;
    }
    on &limit(std::chrono::nanoseconds time)
    {
        launch_.time_limit_ns = time.count() < 1 ? 1 : static_cast<std::uint64_t>(time.count());
        return *this;
    }
    on &after(const job &other)
    {
        after_.push_back(other.get());
        return *this;
    }
    farside_launch get(farside_body body) const
    {
        farside_launch launch = launch_;
        launch.after = after_.data();
        launch.after_count = after_.size();
        launch.body = body;
        return launch;
    }

private:
    farside_launch launch_;
    std::vector<const farside_job *> after_;
};

// Options of a space; 0 and null mean the default.
struct options : farside_options {
    options() : farside_options FARSIDE_OPTIONS_INIT {}
};

// A space. Closed at the end, when its kernels have ended.
class space {
public:
    space() { check(farside_open(nullptr, &space_)); }
    explicit space(const options &how) { check(farside_open(&how, &space_)); }
    space(space &&other) noexcept : space_(std::exchange(other.space_, nullptr)) {}
    space &operator=(space &&other) noexcept
    {
        std::swap(space_, other.space_);
        return *this;
    }
    ~space() { farside_close(space_); }

    std::uint32_t cards() const
    {
        std::uint32_t count = 0;
        check(farside_cards(space_, &count));
        return count;
    }

    std::uint64_t stream() const
    {
        std::uint64_t number = 0;
        check(farside_stream(space_, &number));
        return number;
    }

    // The number of one of a card's own memories, by its name or kind.
    std::uint32_t memory_number(std::uint32_t card, const char *name) const
    {
        std::uint32_t number = 0;
        check(farside_memory_number(space_, card, name, &number));
        return number;
    }

    // Launches a kernel by its name, with values and with what read, write and shared lend.
    template <class... Arguments>
    job launch(const char *kernel, const on &how, const Arguments &...arguments) const
    {
        return start(kernel, how.get(nullptr), {detail::argument(arguments)...});
    }

    // The same with a function of the program; see farside_launch.
    template <class... Arguments>
    job launch(farside_body body, const on &how, const Arguments &...arguments) const
    {
        return start(nullptr, how.get(body), {detail::argument(arguments)...});
    }

    // Launches a kernel, waits for it, and gives what it returned.
    template <class Kernel, class... Arguments>
    std::uint64_t call(Kernel kernel, const on &how, const Arguments &...arguments) const
    {
        return launch(kernel, how, arguments...).wait();
    }

    // Moves values, all of them or none, and gives the pages moved.
    template <class Range> std::uint64_t migrate(const Range &range, std::int32_t to) const
    {
        std::uint64_t pages = 0;
        check(farside_migrate(space_, std::data(range), bytes(range), to, &pages));
        return pages;
    }

    // Brings values as far as there is room, and gives the pages moved.
    template <class Range> std::uint64_t prefetch(const Range &range, std::int32_t to) const
    {
        std::uint64_t pages = 0;
        check(farside_prefetch(space_, std::data(range), bytes(range), to, &pages));
        return pages;
    }

    template <class Range> void pin(const Range &range, std::int32_t at) const
    {
        check(farside_pin(space_, std::data(range), bytes(range), at));
    }
    template <class Range> void unpin(const Range &range) const
    {
        check(farside_unpin(space_, std::data(range), bytes(range)));
    }
    template <class Range> void set_read_only(const Range &range, bool on) const
    {
        check(farside_set_read_only(space_, std::data(range), bytes(range), on));
    }

    // Where the pages of values are.
    template <class Range> std::vector<farside_placement> where(const Range &range) const
    {
        std::size_t count = 0;
        check(farside_where(space_, std::data(range), bytes(range), nullptr, 0, &count));
        std::vector<farside_placement> parts(count);
        check(farside_where(space_, std::data(range), bytes(range), parts.data(), parts.size(), &count));
        if (count < parts.size())
            parts.resize(count);
        return parts;
    }

    // Why the page at an address is where it is.
    std::string why(const void *address) const
    {
        return text([&](char *to, std::size_t size, std::size_t *length) {
            return farside_why(space_, address, to, size, length);
        });
    }

    // What happened so far: for people, or as JSON.
    std::string report(bool json = false) const
    {
        return text([&](char *to, std::size_t size, std::size_t *length) {
            return farside_report(space_, json, to, size, length);
        });
    }

    farside_space *get() const noexcept { return space_; }

private:
    job start(const char *kernel, const farside_launch &how,
              std::initializer_list<farside_argument> arguments) const
    {
        farside_job *started = nullptr;
        check(farside_launch_kernel(space_, kernel, arguments.begin(),
                                    static_cast<std::uint32_t>(arguments.size()), &how, &started));
        return job(started);
    }

    template <class Range> static std::size_t bytes(const Range &range)
    {
        return std::size(range) * sizeof(*std::data(range));
    }

    // A text of which the length is not known: it may grow between two questions.
    template <class Ask> static std::string text(Ask ask)
    {
        std::string answer;
        std::size_t length = 256;
        do {
            answer.resize(length + 1);
            check(ask(&answer[0], answer.size(), &length));
        } while (length >= answer.size());
        answer.resize(length);
        return answer;
    }

    farside_space *space_ = nullptr;
};

namespace detail {

// Values that a space has in use, and gives back at the end.
template <class T> class values {
    static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain data");

public:
    using value_type = T;

    T *data() noexcept { return data_; }
    const T *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    T *begin() noexcept { return data_; }
    T *end() noexcept { return data_ + size_; }
    const T *begin() const noexcept { return data_; }
    const T *end() const noexcept { return data_ + size_; }
    T &operator[](std::size_t index) { return data_[index]; }
    const T &operator[](std::size_t index) const { return data_[index]; }
#if __cplusplus >= 202002L
    operator std::span<T>() noexcept { return {data_, size_}; }
    operator std::span<const T>() const noexcept { return {data_, size_}; }
#endif

protected:
    values(farside_space *in, T *first, std::size_t count) : space_(in), data_(first), size_(count) {}
    values(values &&other) noexcept
        : space_(other.space_), data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0))
    {
    }
    values &operator=(values &&other) noexcept
    {
        std::swap(space_, other.space_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~values() { farside_release(space_, data_); }

    farside_space *space_;
    T *data_;
    std::size_t size_;
};

} // namespace detail

// Values in memory that the program and all cards share, or in a card's own. Freed at the end; what a kernel
// holds just then is freed with the space.
template <class T> class buffer : public detail::values<T> {
    using values = detail::values<T>;

public:
    buffer(const space &in, std::size_t count, const char *name = nullptr)
        : values(in.get(), shared(in, count, name), count)
    {
    }

    // In a card's own memory, or in one of several (space::memory_number): it stays there.
    static buffer own(const space &in, std::uint32_t card, std::size_t count, std::uint32_t number = 0)
    {
        void *memory = nullptr;
        check(farside_malloc_on(in.get(), card, number, bytes(count), &memory));
        return buffer(in.get(), static_cast<T *>(memory), count);
    }

private:
    buffer(farside_space *in, T *first, std::size_t count) : values(in, first, count) {}

    static T *shared(const space &in, std::size_t count, const char *name)
    {
        void *memory = nullptr;
        check(farside_malloc(in.get(), bytes(count), name, &memory));
        return static_cast<T *>(memory);
    }

    // What has no size in bytes is more than there are addresses for.
    static std::size_t bytes(std::size_t count)
    {
        return count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
    }
};

// Memory that the program has already (a vector, an array), shared with the cards at its own addresses until this ends, or
// is released: see farside_adopt. Until then the range lives, and keeps its place and its size.
template <class T> class adopted : public detail::values<T> {
    using values = detail::values<T>;

public:
    template <class Range>
    adopted(const space &in, Range &range, const char *name = nullptr)
        : values(in.get(), shared(in, std::data(range), std::size(range), name), std::size(range))
    {
    }

    // Brings all of it home, and says whether it was done: after an error it can be tried again. This is empty then.
    void release()
    {
        check(farside_release(this->space_, this->data_));
        this->data_ = nullptr;
        this->size_ = 0;
    }

private:
    static T *shared(const space &in, T *first, std::size_t count, const char *name)
    {
        check(farside_adopt(in.get(), first, count * sizeof(T), name));
        return first;
    }
};

template <class Range>
adopted(const space &, Range &, const char * = nullptr)
    -> adopted<std::remove_reference_t<decltype(*std::data(std::declval<Range &>()))>>;

// A file that is shared memory until this ends, or is closed: see farside_map_file. What has no whole T at its end is left alone.
template <class T> class mapped_file : public detail::values<T> {
    using values = detail::values<T>;

public:
    // The host keeps so many bytes of it at a time; 0 stands for 256 MiB.
    mapped_file(const space &in, const char *path, std::uint64_t at_a_time = 0)
        : mapped_file(in.get(), mapped(in, path, at_a_time))
    {
    }

    // Writes what was changed, and waits until it is on the disk. After an error it can be tried again.
    void sync() const { check(farside_sync_file(this->space_, this->data_)); }

    // Writes what was changed, and gives the memory back. After an error it can be tried again. This is empty then.
    void close()
    {
        check(farside_release(this->space_, this->data_));
        this->data_ = nullptr;
        this->size_ = 0;
    }

private:
    struct memory {
        void *first = nullptr;
        std::uint64_t bytes = 0;
    };

    mapped_file(farside_space *in, memory all)
        : values(in, static_cast<T *>(all.first), static_cast<std::size_t>(all.bytes / sizeof(T)))
    {
    }

    static memory mapped(const space &in, const char *path, std::uint64_t at_a_time)
    {
        memory all;
        check(farside_map_file(in.get(), path, at_a_time, &all.first, &all.bytes));
        return all;
    }
};

} // namespace farside

#endif // FARSIDE_HPP
