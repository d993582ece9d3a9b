#include "model/format/identity.h"

#include <xxhash.h>

#include <memory>
#include <new>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "model/format/gguf.h"

namespace skein::model {
namespace {

// The largest tokenizer.json that is published has some 35 MB.
constexpr int64_t kMaxFileBytes = 256 << 20;

// XXH3, 128 bits, in a stream. Every field is preceded by its length, so that no two lists of
// fields hash the same bytes.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }

  void Add(const void* bytes, size_t size) { XXH3_128bits_update(state_.get(), bytes, size); }
  void AddField(std::string_view text) {
    AddNumber(static_cast<int64_t>(text.size()));
    Add(text.data(), text.size());
  }
  void AddNumber(int64_t value) { Add(&value, sizeof(value)); }
  XXH128_hash_t Digest() const { return XXH3_128bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

void AddValue(const std::string& key, const GgufValue& value, Hasher& hasher) {
  hasher.AddField(key);
  hasher.AddNumber(static_cast<int64_t>(value.type));
  hasher.AddNumber(value.is_array ? value.count : -1);
  hasher.AddField(value.numbers);
  for (const std::string& text : value.strings) hasher.AddField(text);
  for (const GgufValue& array : value.arrays) AddValue("", array, hasher);
}

// Whether the file is there; one that is missing is not an empty one.
absl::StatusOr<bool> AddOptional(const std::string& path, Hasher& hasher) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  hasher.AddNumber(text.ok());
  if (text.ok()) hasher.AddField(*text);
  return text.ok();
}

}  // namespace

absl::StatusOr<std::string> ComputeModelIdentity(const std::string& folder,
                                                 const TensorSource& weights) {
  Hasher hasher;
  if (folder.empty()) {
    hasher.AddField(weights.description());
  } else if (IsGgufPath(folder)) {
    SKEIN_ASSIGN_OR_RETURN(const GgufMetadata metadata, ReadGgufMetadata(folder));
    for (const auto& [key, value] : metadata.values()) AddValue(key, value, hasher);
  } else {
    SKEIN_ASSIGN_OR_RETURN(const std::string config,
                           ReadFile(folder + "/config.json", kMaxFileBytes));
    hasher.AddField(config);
    SKEIN_ASSIGN_OR_RETURN(const bool has_json, AddOptional(folder + "/tokenizer.json", hasher));
    if (!has_json) {
      for (const char* name :
           {"/tokenizer.model", "/tokenizer_config.json", "/added_tokens.json"}) {
        SKEIN_RETURN_IF_ERROR(AddOptional(folder + name, hasher).status());
      }
    }
  }
  hasher.AddNumber(static_cast<int64_t>(weights.tensors().size()));
  for (const TensorInfo& tensor : weights.tensors()) {
    hasher.AddField(tensor.name);
    hasher.AddField(DTypeName(tensor.dtype));
    hasher.AddNumber(static_cast<int64_t>(tensor.shape.size()));
    for (int64_t size : tensor.shape) hasher.AddNumber(size);
  }
  for (const FileInfo& file : weights.files()) {
    hasher.AddField(file.name);
    hasher.AddNumber(file.size_bytes);
  }
  const XXH128_hash_t hash = hasher.Digest();
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

void SliceHasher::Add(std::string_view tensor, absl::Span<const Range> slice,
                      absl::Span<const std::byte> bytes) {
  Hasher hasher;
  hasher.AddField(tensor);
  hasher.AddNumber(static_cast<int64_t>(slice.size()));
  for (const Range& range : slice) {
    hasher.AddNumber(range.begin);
    hasher.AddNumber(range.end);
  }
  hasher.Add(bytes.data(), bytes.size());
  const XXH128_hash_t hash = hasher.Digest();
  MutexLock lock(&mutex_);
  ++count_;
  sum_low_ += hash.low64;
  sum_high_ += hash.high64;
}

std::string SliceHasher::Digest() const {
  MutexLock lock(&mutex_);
  return absl::StrFormat("%016x%016x%016x", count_, sum_high_, sum_low_);
}

}  // namespace skein::model
