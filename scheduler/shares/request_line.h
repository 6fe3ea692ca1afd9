// What a tenant's requests take of its limits, and the line in which more of them wait, in the order of their arrival,
// where they would be refused. Plain, for a caller that hands requests on and hears of their tokens and ends.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <utility>

namespace troupe::scheduler {

// What requests take, or may take together. Each is given back at the event that it names.
struct RequestLoad {
  std::uint64_t live = 0;          // answers: at their end
  std::uint64_t waiting = 0;       // answers: at the first token
  std::uint64_t prompt_bytes = 0;  // at the first token
  std::uint64_t texts = 0;         // that a text thread works on: once they are encoded
  std::uint64_t vector_bytes = 0;  // texts, ids and vectors of requests for vectors: at their end

  RequestLoad& operator+=(const RequestLoad& more);
  RequestLoad& operator-=(const RequestLoad& less);
  bool operator==(const RequestLoad&) const = default;
};

// Owners wait apart: over TCP a guest may have the tenant of the server's own user, whose requests do not wait behind
// it.
//
// Not thread-safe. O(1). A line outlives what was taken from it and the places in it.
class RequestLine {
  using Waiting = std::list<std::function<void()>>;  // what wakes each

 public:
  // A request's load. Gives back what is left of it when it is destroyed.
  class Held {
   public:
    Held() = default;
    Held(Held&& other) noexcept : line_(std::exchange(other.line_, nullptr)), load_(std::exchange(other.load_, {})) {}
    Held& operator=(Held&& other) noexcept;
    ~Held() { give_back(load_); }

    explicit operator bool() const { return line_ != nullptr; }
    void encoded() { give_back({.texts = load_.texts}); }
    void begun() { give_back({.waiting = load_.waiting, .prompt_bytes = load_.prompt_bytes, .texts = load_.texts}); }

   private:
    friend class RequestLine;
    Held(RequestLine* line, const RequestLoad& load) : line_(line), load_(load) {}
    void give_back(RequestLoad less);

    RequestLine* line_ = nullptr;
    RequestLoad load_{};
  };

  // A place in the line, until it is destroyed.
  class Place {
   public:
    Place(RequestLine& line, bool is_owner, std::function<void()> wake);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    [[nodiscard]] bool is_first() const { return self_ == waiting_.begin(); }

   private:
    Waiting& waiting_;
    Waiting::iterator self_;
  };

  RequestLine() = default;
  RequestLine(const RequestLine&) = delete;
  RequestLine& operator=(const RequestLine&) = delete;

  // Whether so much more stays within `room`. Of what nothing is taken there is room for any amount: one that no limit
  // can hold is refused by the limit.
  [[nodiscard]] bool has_room(const RequestLoad& more, const RequestLoad& room) const;
  [[nodiscard]] bool is_empty(bool of_owners) const { return waiting(of_owners).empty(); }
  [[nodiscard]] Held take(const RequestLoad& load);

 private:
  const Waiting& waiting(bool of_owners) const { return of_owners ? owners_ : guests_; }

  RequestLoad taken_;
  Waiting owners_, guests_;
};

}  // namespace troupe::scheduler
