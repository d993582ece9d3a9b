// GGUF files for tests, stated byte by byte so that they do not depend on what Skein writes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "model/format/gguf_metadata.h"

namespace skein::model {

template <typename Number>
std::string LittleEndian(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

// A string with its length before it.
inline std::string GgufString(std::string_view text) {
  return LittleEndian<uint64_t>(text.size()) + std::string(text);
}

inline std::string GgufTypeOf(GgufType type) { return LittleEndian(static_cast<uint32_t>(type)); }

// An array's type, count and elements.
inline std::string GgufArray(GgufType type, const std::vector<std::string>& elements) {
  std::string bytes = GgufTypeOf(type) + LittleEndian<uint64_t>(elements.size());
  for (const std::string& element : elements) bytes += element;
  return bytes;
}

inline std::string GgufStrings(const std::vector<std::string>& texts) {
  std::vector<std::string> elements;
  for (const std::string& text : texts) elements.push_back(GgufString(text));
  return GgufArray(GgufType::kString, elements);
}

// The types' numbers in files.
inline constexpr uint32_t kGgmlF32 = 0;
inline constexpr uint32_t kGgmlF16 = 1;
inline constexpr uint32_t kGgmlQ8_0 = 8;
inline constexpr uint32_t kGgmlQ4_K = 12;

// A type's number in files.
inline uint32_t GgmlType(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kIQ4_NL:
      return 20;
    case DType::kIQ4_XS:
      return 23;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    default:
      return 0;  // F32
  }
}

struct GgufBytes {
  uint32_t version = 3;
  int64_t alignment = 32;
  std::string metadata;  // as they lie
  uint64_t metadata_count = 0;
  std::string tensors;
  uint64_t tensor_count = 0;
  std::string data;

  GgufBytes& Add(std::string_view key, GgufType type, std::string_view value) {
    metadata += GgufString(key) + GgufTypeOf(type) + std::string(value);
    ++metadata_count;
    return *this;
  }
  GgufBytes& AddString(std::string_view key, std::string_view value) {
    return Add(key, GgufType::kString, GgufString(value));
  }
  GgufBytes& AddUint32(std::string_view key, uint32_t value) {
    return Add(key, GgufType::kUint32, LittleEndian(value));
  }
  GgufBytes& AddFloat32(std::string_view key, float value) {
    return Add(key, GgufType::kFloat32, LittleEndian(value));
  }

  // A listed tensor; `sizes` innermost first.
  GgufBytes& List(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
                  uint64_t offset) {
    tensors += GgufString(name) + LittleEndian(static_cast<uint32_t>(sizes.size()));
    for (uint64_t size : sizes) tensors += LittleEndian(size);
    tensors += LittleEndian(type) + LittleEndian(offset);
    ++tensor_count;
    return *this;
  }
  // The same, with its elements behind those that are there.
  GgufBytes& AddTensor(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
                       std::string_view elements) {
    data.resize((data.size() + static_cast<size_t>(alignment) - 1) /
                static_cast<size_t>(alignment) * static_cast<size_t>(alignment));
    List(name, sizes, type, data.size());
    data += elements;
    return *this;
  }

  std::string Header() const {
    return "GGUF" + LittleEndian(version) + LittleEndian(tensor_count) +
           LittleEndian(metadata_count) + metadata + tensors;
  }
  std::string Build() const {
    std::string bytes = Header();
    bytes.resize((bytes.size() + static_cast<size_t>(alignment) - 1) /
                 static_cast<size_t>(alignment) * static_cast<size_t>(alignment));
    return bytes + data;
  }
};

}  // namespace skein::model
