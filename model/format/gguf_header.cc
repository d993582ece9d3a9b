#include "model/format/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/printable.h"
#include "base/status_macros.h"

namespace skein::model {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

// As the format has it. Tensors of models have up to 4 dimensions.
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxNameBytes = 1024;
constexpr uint32_t kMaxRank = 8;
constexpr int kMaxArrayDepth = 4;
// The largest published models have some 200,000 tensors.
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kDefaultAlignment = 32;
constexpr std::string_view kAlignment = "general.alignment";

struct TensorType {
  uint32_t id = 0;
  std::string_view name;
  std::optional<DType> dtype;  // unset: Skein does not read it
};
constexpr std::array kTensorTypes = {
    TensorType{0, "F32", DType::kF32},
    TensorType{1, "F16", DType::kF16},
    TensorType{2, "Q4_0", DType::kQ4_0},
    TensorType{3, "Q4_1", DType::kQ4_1},
    TensorType{6, "Q5_0", DType::kQ5_0},
    TensorType{7, "Q5_1", DType::kQ5_1},
    TensorType{8, "Q8_0", DType::kQ8_0},
    TensorType{9, "Q8_1", {}},
    TensorType{10, "Q2_K", DType::kQ2_K},
    TensorType{11, "Q3_K", DType::kQ3_K},
    TensorType{12, "Q4_K", DType::kQ4_K},
    TensorType{13, "Q5_K", DType::kQ5_K},
    TensorType{14, "Q6_K", DType::kQ6_K},
    TensorType{15, "Q8_K", {}},
    TensorType{16, "IQ2_XXS", {}},
    TensorType{17, "IQ2_XS", {}},
    TensorType{18, "IQ3_XXS", {}},
    TensorType{19, "IQ1_S", {}},
    TensorType{20, "IQ4_NL", DType::kIQ4_NL},
    TensorType{21, "IQ3_S", {}},
    TensorType{22, "IQ2_S", {}},
    TensorType{23, "IQ4_XS", DType::kIQ4_XS},
    TensorType{24, "I8", {}},
    TensorType{25, "I16", {}},
    TensorType{26, "I32", {}},
    TensorType{27, "I64", {}},
    TensorType{28, "F64", {}},
    TensorType{29, "IQ1_M", {}},
    TensorType{30, "BF16", DType::kBF16},
    TensorType{34, "TQ1_0", {}},
    TensorType{35, "TQ2_0", {}},
    TensorType{39, "MXFP4", {}},
};

// Names come from strangers.
std::string Quoted(std::string_view name) {
  constexpr size_t kMost = 100;
  return absl::StrCat("'", Printable(name, kMost), "'");
}

// Takes pieces off the head. After an error nothing more is read.
class Reader {
 public:
  Reader(absl::Span<const std::byte> head, int64_t file_bytes)
      : head_(head), file_bytes_(static_cast<uint64_t>(file_bytes)) {}

  uint64_t offset() const { return next_; }
  uint64_t left() const { return file_bytes_ - next_; }  // in the file

  // `what` names the piece in errors.
  absl::StatusOr<std::string_view> Bytes(uint64_t count, std::string_view what) {
    if (count > left()) {
      return Error(absl::StrCat(std::string(what), " takes ", count, " bytes, the file has ",
                                left(), " more: it is cut, or no GGUF file"));
    }
    if (next_ + count > static_cast<uint64_t>(kMaxGgufHeaderBytes)) {
      return Error(absl::StrCat(std::string(what), " ends beyond the ", kMaxGgufHeaderBytes,
                                " bytes that a header may have"));
    }
    if (count > head_.size() - next_) return absl::OutOfRangeError("the header is longer");
    const std::string_view bytes(reinterpret_cast<const char*>(head_.data()) + next_, count);
    next_ += count;
    return bytes;
  }

  template <typename Number>
  absl::StatusOr<Number> Read(std::string_view what) {
    SKEIN_ASSIGN_OR_RETURN(const std::string_view bytes, Bytes(sizeof(Number), what));
    Number number;
    bytes.copy(reinterpret_cast<char*>(&number), sizeof(number));
    return number;
  }

  absl::StatusOr<std::string_view> String(uint64_t most, std::string_view what) {
    SKEIN_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
    if (length > most && length <= left()) {
      return Error(
          absl::StrCat(std::string(what), " has ", length, " bytes; at most ", most, " are read"));
    }
    return Bytes(length, what);
  }

  absl::Status Error(const std::string& reason) const {
    return absl::InvalidArgumentError(absl::StrCat("at offset ", next_, ": ", reason));
  }

 private:
  absl::Span<const std::byte> head_;
  uint64_t file_bytes_;
  uint64_t next_ = 0;
};

absl::StatusOr<GgufType> ReadType(Reader& reader, const std::string& of) {
  SKEIN_ASSIGN_OR_RETURN(const uint32_t number, reader.Read<uint32_t>(of + "'s type"));
  if (number > static_cast<uint32_t>(GgufType::kFloat64)) {
    return reader.Error(absl::StrCat(of, " has type ", number, "; 0 to 12 are known"));
  }
  return static_cast<GgufType>(number);
}

// The elements of `value`, whose type and count are known.
absl::Status ReadElements(Reader& reader, const std::string& of, int depth, GgufValue& value);

absl::StatusOr<GgufValue> ReadArray(Reader& reader, const std::string& of, int depth) {
  if (depth == kMaxArrayDepth) {
    return reader.Error(absl::StrCat(of, " nests arrays more than ", kMaxArrayDepth, " deep"));
  }
  GgufValue array;
  array.is_array = true;
  SKEIN_ASSIGN_OR_RETURN(array.type, ReadType(reader, of));
  SKEIN_ASSIGN_OR_RETURN(const uint64_t count, reader.Read<uint64_t>(of + "'s count"));
  // A string has 8 bytes at least, an array 12.
  const auto least = static_cast<uint64_t>(
      std::max<int64_t>(GgufTypeBytes(array.type), array.type == GgufType::kString  ? 8
                                                   : array.type == GgufType::kArray ? 12
                                                                                    : 1));
  if (count > reader.left() / least) {
    return reader.Error(absl::StrCat(of, " has ", count, " elements of at least ", least,
                                     " bytes, the file ", reader.left(), " more bytes"));
  }
  array.count = static_cast<int64_t>(count);
  SKEIN_RETURN_IF_ERROR(ReadElements(reader, of, depth + 1, array));
  return array;
}

absl::Status ReadElements(Reader& reader, const std::string& of, int depth, GgufValue& value) {
  if (value.type == GgufType::kString) {
    for (int64_t i = 0; i < value.count; ++i) {
      SKEIN_ASSIGN_OR_RETURN(const std::string_view text,
                             reader.String(std::numeric_limits<uint64_t>::max(), of));
      value.strings.emplace_back(text);
    }
    return absl::OkStatus();
  }
  if (value.type == GgufType::kArray) {
    for (int64_t i = 0; i < value.count; ++i) {
      SKEIN_ASSIGN_OR_RETURN(value.arrays.emplace_back(), ReadArray(reader, of, depth));
    }
    return absl::OkStatus();
  }
  const auto bytes = static_cast<uint64_t>(value.count * GgufTypeBytes(value.type));
  SKEIN_ASSIGN_OR_RETURN(const std::string_view numbers, reader.Bytes(bytes, of));
  if (value.type == GgufType::kBool) {
    for (char byte : numbers) {
      if (byte != 0 && byte != 1) {
        return reader.Error(absl::StrCat(of, " holds a bool of value ", static_cast<uint8_t>(byte),
                                         " before here; 0 and 1 are known"));
      }
    }
  }
  value.numbers = std::string(numbers);
  return absl::OkStatus();
}

absl::StatusOr<GgufValue> ReadValue(Reader& reader, const std::string& of) {
  SKEIN_ASSIGN_OR_RETURN(const GgufType type, ReadType(reader, of));
  if (type == GgufType::kArray) return ReadArray(reader, of, 0);
  GgufValue value;
  value.type = type;
  SKEIN_RETURN_IF_ERROR(ReadElements(reader, of, 0, value));
  return value;
}

absl::StatusOr<GgufMetadata> ReadMetadata(Reader& reader, uint64_t count) {
  GgufMetadata::Values values;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string number = absl::StrCat("the key of metadata ", i, " of ", count);
    SKEIN_ASSIGN_OR_RETURN(const std::string_view key, reader.String(kMaxKeyBytes, number));
    if (key.empty()) return reader.Error(number + " is empty");
    const std::string of = "metadata " + Quoted(key);
    const auto [place, added] = values.try_emplace(std::string(key));
    if (!added) return reader.Error(of + " appears twice");
    SKEIN_ASSIGN_OR_RETURN(place->second, ReadValue(reader, of));
  }
  return GgufMetadata(std::move(values));
}

absl::StatusOr<DType> ReadDType(Reader& reader, const std::string& of) {
  SKEIN_ASSIGN_OR_RETURN(const uint32_t id, reader.Read<uint32_t>(of + "'s type"));
  for (const TensorType& type : kTensorTypes) {
    if (type.id != id) continue;
    if (type.dtype) return *type.dtype;
    return absl::UnimplementedError(
        absl::StrCat(of, " is stored as ", std::string(type.name),
                     "; Skein reads F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, "
                     "IQ4_NL and IQ4_XS"));
  }
  return absl::UnimplementedError(
      absl::StrCat(of, " has type ", id, ", which Skein does not know"));
}

// A tensor as it is listed; its offset counts from the data's begin.
absl::StatusOr<TensorEntry> ReadTensor(Reader& reader, const std::string& number) {
  TensorEntry entry;
  SKEIN_ASSIGN_OR_RETURN(const std::string_view name,
                         reader.String(kMaxNameBytes, "the name of " + number));
  if (name.empty()) return reader.Error(number + " has no name");
  entry.tensor.name = std::string(name);
  const std::string of = "tensor " + Quoted(name);
  SKEIN_ASSIGN_OR_RETURN(const uint32_t rank, reader.Read<uint32_t>(of + "'s dimensions"));
  if (rank > kMaxRank) {
    return reader.Error(
        absl::StrCat(of, " has ", rank, " dimensions; at most ", kMaxRank, " are read"));
  }
  int64_t most = 1;  // as if no size were 0: then any order of products is in range
  for (uint32_t d = 0; d < rank; ++d) {
    SKEIN_ASSIGN_OR_RETURN(const uint64_t size, reader.Read<uint64_t>(of + "'s sizes"));
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(most, std::max<int64_t>(1, static_cast<int64_t>(size)), &most)) {
      return reader.Error(of + " has more elements than 63 bits can count");
    }
    entry.tensor.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(entry.tensor.shape.begin(), entry.tensor.shape.end());
  SKEIN_ASSIGN_OR_RETURN(entry.tensor.dtype, ReadDType(reader, of));
  const int64_t block = BlockElements(entry.tensor.dtype);
  const int64_t row = rank == 0 ? 1 : entry.tensor.shape.back();
  if (row % block != 0) {
    return reader.Error(absl::StrCat(of, " has rows of ", row, " elements; a block of ",
                                     std::string(DTypeName(entry.tensor.dtype)), " has ", block));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(most / block, BlockBytes(entry.tensor.dtype), &bytes)) {
    return reader.Error(of + " has more bytes than 63 bits can count");
  }
  SKEIN_ASSIGN_OR_RETURN(const uint64_t offset, reader.Read<uint64_t>(of + "'s offset"));
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return reader.Error(absl::StrCat(of, " begins at offset ", offset, ", beyond 63 bits"));
  }
  entry.offset_bytes = static_cast<int64_t>(offset);
  return entry;
}

absl::StatusOr<int64_t> Alignment(const GgufMetadata& metadata) {
  if (!metadata.Has(kAlignment)) return kDefaultAlignment;
  SKEIN_ASSIGN_OR_RETURN(const int64_t alignment, metadata.Integer(kAlignment));
  // A page of the largest kind.
  constexpr int64_t kMost = 1 << 30;
  if (alignment < 1 || alignment > kMost ||
      !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(kAlignment), "' is ",
                                                   alignment, ", not a power of two from 1 to ",
                                                   kMost));
  }
  return alignment;
}

int64_t BytesOf(const TensorInfo& tensor) { return DTypeBytes(tensor.dtype, tensor.elements()); }

// Offsets become those in the file. Each tensor lies within it, aligned, and overlaps no other.
absl::Status Place(std::vector<TensorEntry>& entries, int64_t data_begin, int64_t alignment,
                   int64_t file_bytes) {
  std::vector<const TensorEntry*> by_offset;
  for (TensorEntry& entry : entries) {
    const std::string of = "tensor " + Quoted(entry.tensor.name);
    if (entry.offset_bytes % alignment != 0) {
      return absl::InvalidArgumentError(absl::StrCat(of, " begins ", entry.offset_bytes,
                                                     " bytes into the data, not a multiple of ",
                                                     alignment));
    }
    const int64_t bytes = BytesOf(entry.tensor);
    const int64_t data_bytes = std::max<int64_t>(0, file_bytes - data_begin);
    if (entry.offset_bytes > data_bytes || bytes > data_bytes - entry.offset_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(of, " has ", bytes, " bytes from ", entry.offset_bytes, " on; the data at ",
                       "offset ", data_begin, " has ", data_bytes, ": the file is cut, or lies"));
    }
    entry.offset_bytes += data_begin;
    if (bytes > 0) by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return a->offset_bytes < b->offset_bytes;
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorEntry& before = *by_offset[i - 1];
    const TensorEntry& entry = *by_offset[i];
    const int64_t end = before.offset_bytes + BytesOf(before.tensor);
    if (entry.offset_bytes < end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quoted(entry.tensor.name), " begins at offset ", entry.offset_bytes,
          ", inside of tensor ", Quoted(before.tensor.name), ", which ends at ", end));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVersion(Reader& reader) {
  SKEIN_ASSIGN_OR_RETURN(const std::string_view magic, reader.Bytes(4, "the magic"));
  if (magic != "GGUF") {
    return absl::InvalidArgumentError(
        absl::StrCat("begins with ", Quoted(magic), ", not 'GGUF': no GGUF file"));
  }
  SKEIN_ASSIGN_OR_RETURN(const uint32_t version, reader.Read<uint32_t>("the version"));
  if (version == 2 || version == 3) return absl::OkStatus();
  if (version != 0 && version % 65536 == 0) {
    return absl::UnimplementedError("is a big-endian GGUF file; Skein reads little-endian ones");
  }
  return absl::UnimplementedError(
      absl::StrCat("is of GGUF version ", version, "; Skein reads versions 2 and 3"));
}

}  // namespace

std::optional<uint32_t> GgufTensorType(DType dtype) {
  for (const TensorType& type : kTensorTypes) {
    if (type.dtype == dtype) return type.id;
  }
  return std::nullopt;
}

absl::StatusOr<GgufHeader> ParseGgufHeader(absl::Span<const std::byte> head, int64_t file_bytes) {
  Reader reader(head, file_bytes);
  SKEIN_RETURN_IF_ERROR(CheckVersion(reader));
  SKEIN_ASSIGN_OR_RETURN(const uint64_t tensors, reader.Read<uint64_t>("the number of tensors"));
  SKEIN_ASSIGN_OR_RETURN(const uint64_t metadata, reader.Read<uint64_t>("the number of metadata"));
  if (tensors > kMaxTensors) {
    return reader.Error(absl::StrCat("the file says it has ", tensors, " tensors; at most ",
                                     kMaxTensors, " are read"));
  }
  GgufHeader header;
  SKEIN_ASSIGN_OR_RETURN(header.metadata, ReadMetadata(reader, metadata));
  SKEIN_ASSIGN_OR_RETURN(const int64_t alignment, Alignment(header.metadata));
  for (uint64_t i = 0; i < tensors; ++i) {
    SKEIN_ASSIGN_OR_RETURN(header.entries.emplace_back(),
                           ReadTensor(reader, absl::StrCat("tensor ", i, " of ", tensors)));
  }
  const auto end = static_cast<int64_t>(reader.offset());
  SKEIN_RETURN_IF_ERROR(
      Place(header.entries, (end + alignment - 1) / alignment * alignment, alignment, file_bytes));
  std::sort(
      header.entries.begin(), header.entries.end(),
      [](const TensorEntry& a, const TensorEntry& b) { return a.tensor.name < b.tensor.name; });
  for (size_t i = 1; i < header.entries.size(); ++i) {
    if (header.entries[i - 1].tensor.name == header.entries[i].tensor.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(header.entries[i].tensor.name), " appears twice"));
    }
  }
  return header;
}

}  // namespace skein::model
