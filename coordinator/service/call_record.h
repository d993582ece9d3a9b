// What the log tells of a client's call: whose it is, and how it went.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/log/log_fields.h"
#include "base/mutex.h"

namespace skein::coordinator {

// A call may be several requests of the service, as where it has several prompts. Thread-safe.
class CallRecord {
 public:
  struct Caller {
    std::string trace_id;  // see TraceIdOf; "": none
    std::string client;    // ADDRESS:PORT; "": not known
    std::string key;       // name of its API key; "": none
  };
  explicit CallRecord(Caller caller) : caller_(std::move(caller)) {
    if (!caller_.trace_id.empty()) fields_.emplace_back("trace_id", caller_.trace_id);
  }

  const Caller& caller() const { return caller_; }
  const LogFields& fields() const { return fields_; }  // of each line that concerns the call

  // Which answer it is about, as LoggedId has it; the first counts.
  void Concerns(const std::string& request_id) {
    MutexLock lock(&mutex_);
    if (counts_.request_id.empty()) counts_.request_id = request_id;
  }
  void OnAdmitted(int64_t prompt_tokens) {
    MutexLock lock(&mutex_);
    ++counts_.requests;
    counts_.prompt_tokens += prompt_tokens;
  }
  // So long after a request arrived; the first counts, of both.
  void OnDispatched(absl::Duration queued) {
    MutexLock lock(&mutex_);
    if (!counts_.queued.has_value()) counts_.queued = queued;
  }
  void OnFirstToken(absl::Duration waited) {
    MutexLock lock(&mutex_);
    if (!counts_.first_token.has_value()) counts_.first_token = waited;
  }
  void OnTokens(int64_t tokens) {
    MutexLock lock(&mutex_);
    counts_.answer_tokens += tokens;
  }

  struct Counts {
    std::string request_id;
    int64_t requests = 0;
    int64_t prompt_tokens = 0;
    int64_t answer_tokens = 0;
    std::optional<absl::Duration> queued, first_token;
  };
  Counts counts() const {
    MutexLock lock(&mutex_);
    return counts_;
  }

  // While it lives, what its thread does is done for the call: lines are logged with its fields,
  // and requests that begin are told to it. No record: for none.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<CallRecord> record) : before_(std::move(current_)) {
      current_ = std::move(record);
      if (current_ != nullptr) fields_.emplace(current_->fields());
    }
    ~Scope() {
      fields_.reset();
      current_ = std::move(before_);
    }
    Scope(const Scope&) = delete;

   private:
    std::shared_ptr<CallRecord> before_;
    std::optional<WithLogFields> fields_;
  };
  // Of this thread; null: none.
  static const std::shared_ptr<CallRecord>& Current() { return current_; }

 private:
  inline static thread_local std::shared_ptr<CallRecord> current_;

  const Caller caller_;
  LogFields fields_;
  mutable Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::coordinator
