#include "model/format/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json/json.h"
#include "base/status_macros.h"

namespace skein::model {
namespace {

using nlohmann::json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;
// The largest published models have some 200,000.
constexpr size_t kMaxTensors = 1 << 20;
// Weights have 1 or 2 dimensions, stacked experts 3, convolutions up to 5.
constexpr size_t kMaxRank = 8;

// Element types of the format that DType does not have.
constexpr std::array<std::string_view, 12> kOtherDTypes = {
    "BOOL", "U8",  "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2",
    "F4",   "I16", "U16",     "U32",     "U64",     "F64"};

// One value of the header's object, as it is written.
struct RawEntry {
  std::string name;
  int64_t offset_bytes = 0;  // of its name, in the file
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> data_offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_data_offsets = false;
};

std::string Named(const RawEntry& entry) {
  return absl::StrCat("tensor '", entry.name, "' at offset ", entry.offset_bytes, ": ");
}

absl::Status TensorError(const RawEntry& entry, std::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(Named(entry), std::string(reason)));
}

// Takes the parser's events and accepts the header's grammar only, so that nothing is kept that is
// not a tensor and nothing is nested deeper than a tensor's shape.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  absl::StatusOr<std::vector<RawEntry>> Read(std::string_view text) {
    begin_ = next_ = text.data();
    const bool parsed =
        json::sax_parse(JsonCursor(begin_, &next_), JsonCursor(begin_ + text.size(), &next_), this);
    SKEIN_RETURN_IF_ERROR(status_);
    if (!parsed) return absl::InvalidArgumentError("the header is not JSON");
    return std::move(entries_);
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kOutside:
        place_ = Place::kTop;
        return true;
      case Place::kTop:
        place_ = in_metadata_ ? Place::kMetadata : Place::kEntry;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::kEntry) {
      const RawEntry& entry = entries_.back();
      for (const auto& [has, field] :
           {std::pair(entry.has_dtype, "dtype"), std::pair(entry.has_shape, "shape"),
            std::pair(entry.has_data_offsets, "data_offsets")}) {
        if (!has) return Fail(TensorError(entry, absl::StrCat("has no ", field)));
      }
    }
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    return true;
  }

  bool key(std::string& key) override {
    key_ = key;
    switch (place_) {
      case Place::kTop:
        return StartMember();
      case Place::kMetadata:
        if (metadata_keys_.insert(key).second) return true;
        return Fail(absl::InvalidArgumentError(absl::StrCat(
            "key '", key, "' of __metadata__ at offset ", KeyOffset(), " appears twice")));
      default:
        return StartField();
    }
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kEntry || key_ != "dtype") return Unexpected("a string");
    entries_.back().dtype = value;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kEntry || key_ == "dtype") return Unexpected("an array");
    place_ = Place::kNumbers;
    return true;
  }

  bool end_array() override {
    place_ = Place::kEntry;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kNumbers) return Unexpected("a number");
    RawEntry& entry = entries_.back();
    std::vector<uint64_t>& numbers = key_ == "shape" ? entry.shape : entry.data_offsets;
    const size_t most = key_ == "shape" ? kMaxRank : 2;
    if (numbers.size() == most) {
      return Fail(TensorError(entry, absl::StrCat(key_, " has more than ", most, " numbers")));
    }
    numbers.push_back(value);
    return true;
  }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(int64_t) override { return Unexpected("a negative number"); }
  bool number_float(double, const std::string&) override {
    return Unexpected("a fraction or a number beyond 64 bits");
  }
  bool binary(json::binary_t&) override { return Unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return Fail(JsonError(kSafetensorsPrefixBytes + static_cast<int64_t>(position) - 1, error));
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kEntry, kNumbers };

  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  bool Unexpected(const char* what) {
    if (place_ == Place::kOutside) {
      return Fail(
          absl::InvalidArgumentError(absl::StrCat("the header is ", what, ", not an object")));
    }
    if (in_metadata_) {
      return Fail(absl::InvalidArgumentError(absl::StrCat("__metadata__ at offset ",
                                                          metadata_offset_, " holds ", what,
                                                          "; it maps strings to strings")));
    }
    const RawEntry& entry = entries_.back();
    if (place_ == Place::kTop) return Fail(TensorError(entry, absl::StrCat("is ", what)));
    return Fail(TensorError(entry, absl::StrCat(key_, " holds ", what)));
  }

  // The offset in the file of the key that was just read. A quote within it follows a backslash.
  int64_t KeyOffset() const {
    const char* quote = next_ - 2;
    while (*quote != '"' || quote[-1] == '\\') --quote;
    return kSafetensorsPrefixBytes + (quote - begin_);
  }

  bool StartMember() {
    in_metadata_ = key_ == "__metadata__";
    if (in_metadata_) {
      const bool twice = metadata_offset_ > 0;
      metadata_offset_ = KeyOffset();
      if (!twice) return true;
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("__metadata__ appears twice, again at offset ", metadata_offset_)));
    }
    if (entries_.size() == kMaxTensors) {
      return Fail(absl::InvalidArgumentError(absl::StrCat(
          "more than ", kMaxTensors, " tensors, the first too many at offset ", KeyOffset())));
    }
    RawEntry& entry = entries_.emplace_back();
    entry.name = key_;
    entry.offset_bytes = KeyOffset();
    return true;
  }

  bool StartField() {
    RawEntry& entry = entries_.back();
    bool* seen = key_ == "dtype"          ? &entry.has_dtype
                 : key_ == "shape"        ? &entry.has_shape
                 : key_ == "data_offsets" ? &entry.has_data_offsets
                                          : nullptr;
    if (seen == nullptr) {
      return Fail(TensorError(entry, absl::StrCat("unknown key '", key_, "'")));
    }
    if (!std::exchange(*seen, true)) return true;
    return Fail(TensorError(entry, absl::StrCat(key_, " appears twice")));
  }

  const char* begin_ = nullptr;
  const char* next_ = nullptr;  // what the parser reads next
  Place place_ = Place::kOutside;
  bool in_metadata_ = false;
  int64_t metadata_offset_ = 0;  // 0: not seen
  std::string key_;              // the innermost
  std::set<std::string> metadata_keys_;
  std::vector<RawEntry> entries_;
  absl::Status status_;
};

absl::StatusOr<DType> ReadDType(const RawEntry& raw) {
  // What quantised checkpoints are stored in, and tensors of a few numbers beside them.
  for (const DType dtype : {DType::kF8E4M3, DType::kI8, DType::kI32, DType::kI64}) {
    if (raw.dtype == DTypeName(dtype)) return dtype;
  }
  const absl::StatusOr<DType> dtype = ParseDType(raw.dtype);
  if (dtype.ok()) return dtype;
  if (std::find(kOtherDTypes.begin(), kOtherDTypes.end(), raw.dtype) != kOtherDTypes.end()) {
    return absl::UnimplementedError(
        absl::StrCat(Named(raw), "is stored as ", raw.dtype, "; Skein reads F32, F16 and BF16"));
  }
  return TensorError(raw, std::string(dtype.status().message()));
}

// The shape as signed numbers, if its bytes can be counted without overflow.
absl::StatusOr<int64_t> ReadShape(const RawEntry& raw, TensorInfo& tensor) {
  int64_t elements = 1;
  bool overflow = false;
  for (uint64_t size : raw.shape) {
    overflow |= size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const int64_t signed_size = static_cast<int64_t>(size);
    overflow |= __builtin_mul_overflow(elements, signed_size, &elements);
    tensor.shape.push_back(signed_size);
  }
  int64_t bytes = 0;
  overflow |= __builtin_mul_overflow(elements, BlockBytes(tensor.dtype), &bytes);
  if (overflow) return TensorError(raw, "its shape has more elements than 64 bits can count");
  return bytes;
}

absl::StatusOr<TensorEntry> CheckEntry(RawEntry raw, int64_t data_begin, int64_t data_bytes) {
  TensorEntry entry;
  SKEIN_ASSIGN_OR_RETURN(entry.tensor.dtype, ReadDType(raw));
  SKEIN_ASSIGN_OR_RETURN(const int64_t bytes, ReadShape(raw, entry.tensor));
  if (raw.data_offsets.size() != 2) {
    return TensorError(raw, "data_offsets must be two numbers");
  }
  const uint64_t begin = raw.data_offsets[0];
  const uint64_t end = raw.data_offsets[1];
  if (begin > end || end > static_cast<uint64_t>(data_bytes)) {
    return TensorError(
        raw, absl::StrCat("data_offsets [", begin, ", ", end, "] are not within the ", data_bytes,
                          " bytes of data at offset ", data_begin));
  }
  if (end - begin != static_cast<uint64_t>(bytes)) {
    return TensorError(raw, absl::StrCat("data_offsets [", begin, ", ", end, "] hold ", end - begin,
                                         " bytes, its shape and dtype need ", bytes));
  }
  entry.tensor.name = std::move(raw.name);
  entry.offset_bytes = data_begin + static_cast<int64_t>(begin);
  return entry;
}

int64_t EndOf(const TensorEntry& entry) {
  return entry.offset_bytes + DTypeBytes(entry.tensor.dtype, entry.tensor.elements());
}

// `entries` are sorted by offset, empty tensors before what follows them.
absl::Status CheckCover(const std::vector<TensorEntry>& entries, int64_t data_begin,
                        int64_t file_bytes) {
  int64_t end = data_begin;
  for (const TensorEntry& entry : entries) {
    if (entry.offset_bytes != end) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", entry.tensor.name, "': begins at offset ", entry.offset_bytes,
                       entry.offset_bytes < end ? ", inside of another tensor, which ends at "
                                                : ", and no tensor holds the bytes from ",
                       end));
    }
    end = EndOf(entry);
  }
  if (end != file_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensors end at offset ", end, ", the file at ", file_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ParseSafetensorsPrefix(absl::Span<const std::byte> prefix,
                                               int64_t file_bytes) {
  if (prefix.size() < kSafetensorsPrefixBytes || file_bytes < kSafetensorsPrefixBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the file has ", file_bytes, " bytes, too few for the header's length at offset 0"));
  }
  uint64_t length = 0;
  for (int i = kSafetensorsPrefixBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<uint64_t>(prefix[static_cast<size_t>(i)]);
  }
  const uint64_t most =
      static_cast<uint64_t>(std::min(kMaxHeaderBytes, file_bytes - kSafetensorsPrefixBytes));
  if (length < 2 || length > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header's length at offset 0 is ", length, ", not in [2, ", most,
                     "]: not a safetensors file, or a truncated one"));
  }
  return static_cast<int64_t>(length);
}

absl::StatusOr<std::vector<TensorEntry>> ParseSafetensorsHeader(std::string_view json,
                                                                int64_t file_bytes) {
  const int64_t data_begin = kSafetensorsPrefixBytes + static_cast<int64_t>(json.size());
  if (json.empty() || json[0] != '{') {
    return absl::InvalidArgumentError("the header at offset 8 does not begin with '{'");
  }
  if (const size_t zero = json.find('\0'); zero != json.npos) {
    // The parser takes it for the end.
    return JsonError(kSafetensorsPrefixBytes + static_cast<int64_t>(zero), "a zero byte");
  }
  SKEIN_ASSIGN_OR_RETURN(std::vector<RawEntry> raw_entries, HeaderReader().Read(json));
  std::sort(raw_entries.begin(), raw_entries.end(), [](const RawEntry& a, const RawEntry& b) {
    return std::tie(a.name, a.offset_bytes) < std::tie(b.name, b.offset_bytes);
  });
  for (size_t i = 1; i < raw_entries.size(); ++i) {
    if (raw_entries[i - 1].name == raw_entries[i].name) {
      return TensorError(raw_entries[i], "appears twice");
    }
  }
  std::vector<TensorEntry> entries;
  entries.reserve(raw_entries.size());
  for (RawEntry& raw : raw_entries) {
    SKEIN_ASSIGN_OR_RETURN(entries.emplace_back(),
                           CheckEntry(std::move(raw), data_begin, file_bytes - data_begin));
  }
  std::vector<TensorEntry> by_offset = entries;
  std::sort(by_offset.begin(), by_offset.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset_bytes, EndOf(a)) < std::pair(b.offset_bytes, EndOf(b));
  });
  SKEIN_RETURN_IF_ERROR(CheckCover(by_offset, data_begin, file_bytes));
  return entries;
}

}  // namespace skein::model
