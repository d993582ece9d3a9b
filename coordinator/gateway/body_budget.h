// Bounds what the bodies of all requests that are read at once take.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace skein::coordinator {

// Thread-safe.
class BodyBudget {
 public:
  explicit BodyBudget(int64_t bytes) : free_(bytes) {}

  // Gives its bytes back when it goes. The budget outlives it.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->free_ += bytes_;
    }
    explicit operator bool() const { return budget_ != nullptr; }

   private:
    friend class BodyBudget;
    Share(BodyBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) {}
    BodyBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

  // An empty share where so many bytes are not left.
  Share Take(int64_t bytes) {
    if (free_.fetch_sub(bytes) >= bytes) return Share(this, bytes);
    free_ += bytes;
    return Share();
  }

 private:
  std::atomic<int64_t> free_;
};

}  // namespace skein::coordinator
