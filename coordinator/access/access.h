// Who may use the public service, and how much: API keys, and what each has used.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "coordinator/access/api_keys.h"
#include "coordinator/access/key_usage.h"
#include "coordinator/access/key_usage_file.h"
#include "serving/keys/key_file.h"

namespace skein::coordinator {

// A request that was taken in. It counts as a stream until it ends. Not thread-safe.
class Admission {
 public:
  // One that KeyUsage::Begin has counted. The usage outlives it.
  Admission(std::shared_ptr<const serving::ApiKey> key, KeyUsage* usage)
      : key_(std::move(key)), usage_(usage) {}
  ~Admission() { End(); }
  Admission(const Admission&) = delete;

  // See KeyUsage.
  std::optional<Excess> AddPrompt(int64_t tokens) {
    return usage_->AddPrompt(key_->name, key_->limits, tokens);
  }
  void AddAnswer(int64_t tokens) { usage_->AddAnswer(key_->name, tokens); }
  void End() {
    if (!std::exchange(ended_, true)) usage_->End(key_->name);
  }

 private:
  const std::shared_ptr<const serving::ApiKey> key_;
  KeyUsage* const usage_;
  bool ended_ = false;
};

// Thread-safe.
class Access {
 public:
  struct Options {
    std::string keys_file;
    std::string usage_db;  // "": what was used is forgotten with the process
  };
  // Errors of ApiKeys::Load and KeyUsageFile::Open. The clock outlives it.
  static absl::StatusOr<std::unique_ptr<Access>> Open(const Options& options, const Clock* clock);

  // See ApiKeys. Limits count from the next request on.
  absl::Status Reload() { return keys_->Reload(); }
  std::shared_ptr<const serving::ApiKey> Find(std::string_view key) const {
    return keys_->Find(key);
  }

  // The admission, or why there is none. It ends before this.
  struct Verdict {
    std::unique_ptr<Admission> admission;
    std::optional<Excess> excess;
  };
  Verdict Admit(std::shared_ptr<const serving::ApiKey> key);

 private:
  Access(std::unique_ptr<ApiKeys> keys, const Clock* clock)
      : keys_(std::move(keys)), usage_(clock) {}

  const std::unique_ptr<ApiKeys> keys_;
  KeyUsage usage_;
  std::unique_ptr<KeyUsageFile> file_;  // goes first: it writes what is left
};

}  // namespace skein::coordinator
