#include "coordinator/access/api_keys.h"

#include <openssl/crypto.h>

#include <utility>

#include "base/status_macros.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {

ApiKeys::ApiKeys(std::string path, Keys keys)
    : path_(std::move(path)), keys_(std::make_shared<const Keys>(std::move(keys))) {}

absl::StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Load(std::string path) {
  SKEIN_ASSIGN_OR_RETURN(Keys keys, serving::ReadKeys(path));
  spdlog::info("{} API keys from {}", keys.size(), path);
  return std::unique_ptr<ApiKeys>(new ApiKeys(std::move(path), std::move(keys)));
}

absl::Status ApiKeys::Reload() {
  absl::StatusOr<Keys> keys = serving::ReadKeys(path_);
  if (!keys.ok()) {
    spdlog::error("the API keys stay as they were: {}", std::string(keys.status().message()));
    return keys.status();
  }
  spdlog::info("{} API keys from {}", keys->size(), path_);
  auto replaced = std::make_shared<const Keys>(*std::move(keys));
  MutexLock lock(&mutex_);
  keys_.swap(replaced);
  return absl::OkStatus();
}

std::shared_ptr<const serving::ApiKey> ApiKeys::Find(std::string_view key) const {
  std::shared_ptr<const Keys> keys;
  {
    MutexLock lock(&mutex_);
    keys = keys_;
  }
  const serving::KeyHash hash = serving::HashOfKey(key);
  const serving::ApiKey* found = nullptr;
  for (const serving::ApiKey& of : *keys) {
    if (CRYPTO_memcmp(of.hash.data(), hash.data(), hash.size()) == 0) found = &of;
  }
  if (found == nullptr) return nullptr;
  return {std::move(keys), found};
}

}  // namespace skein::coordinator
