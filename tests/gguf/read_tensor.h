// Whole tensors of small models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/range.h"
#include "base/test_util.h"
#include "model/format/tensor_source.h"

namespace skein::testing {

// In the tensor's own type; fails the test where it cannot be read.
inline std::string Bytes(const model::TensorSource& source, const model::TensorInfo& tensor) {
  std::string bytes(static_cast<size_t>(DTypeBytes(tensor.dtype, tensor.elements())), '\0');
  std::vector<Range> whole;
  for (const int64_t size : tensor.shape) whole.push_back({0, size});
  SKEIN_EXPECT_OK(source.Read(
      tensor, whole, absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())));
  return bytes;
}

inline std::vector<float> Values(const model::TensorSource& source,
                                 const model::TensorInfo& tensor) {
  const std::string bytes = Bytes(source, tensor);
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  ConvertToFloat(tensor.dtype, bytes.data(), tensor.elements(), values.data());
  return values;
}

}  // namespace skein::testing
