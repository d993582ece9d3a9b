// The API keys of a file (serving/keys/key_file.h tells its form), while the coordinator runs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "serving/keys/key_file.h"

namespace skein::coordinator {

// Thread-safe.
class ApiKeys {
 public:
  // ReadKeys' errors.
  static absl::StatusOr<std::unique_ptr<ApiKeys>> Load(std::string path);

  // Reads the file again, and logs what came of it. From then on Find tells what is there now. A
  // broken file is an error, and the keys stay as they are.
  absl::Status Reload();

  // The key that this is, or null. It stays as it is for who holds it. All keys are looked at, each
  // in constant time: how long that takes tells nothing of any of them. Costs a SHA-256 and 32
  // bytes a key.
  std::shared_ptr<const serving::ApiKey> Find(std::string_view key) const;

 private:
  using Keys = std::vector<serving::ApiKey>;
  ApiKeys(std::string path, Keys keys);

  const std::string path_;
  mutable Mutex mutex_;
  std::shared_ptr<const Keys> keys_ ABSL_GUARDED_BY(mutex_);  // replaced, never changed
};

}  // namespace skein::coordinator
