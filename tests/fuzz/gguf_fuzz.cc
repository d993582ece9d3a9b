// Opens any bytes as a GGUF file and, when that succeeds, reads every tensor, under both of its
// names, dequantises it, and encodes a text with the tokenizer.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "model/format/gguf.h"
#include "model/format/gguf_weights.h"
#include "model/tokenizer/gguf_tokenizer.h"

namespace {

using skein::Range;
using skein::model::TensorInfo;

void Check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  Check(fd >= 0);
  Check(write(fd, data, size) == static_cast<ssize_t>(size));
  auto model = skein::model::OpenGguf("/proc/self/fd/" + std::to_string(fd));
  if (model.ok()) {
    int64_t total = 0;
    for (const TensorInfo& tensor : model->tensors->tensors()) {
      const int64_t elements = tensor.elements();
      const int64_t bytes = skein::DTypeBytes(tensor.dtype, elements);
      total += bytes;
      std::vector<Range> whole;
      for (const int64_t length : tensor.shape) whole.push_back({0, length});
      std::vector<std::byte> out(static_cast<size_t>(bytes));
      Check(model->tensors->Read(tensor, whole, absl::MakeSpan(out)).ok());
      std::vector<float> floats(static_cast<size_t>(elements));
      skein::ConvertToFloat(tensor.dtype, out.data(), elements, floats.data());
    }
    Check(total <= static_cast<int64_t>(size));
    const auto tokenizer = skein::model::ParseGgufTokenizer(model->metadata);
    if (tokenizer.ok()) {
      const auto ids = (*tokenizer)->Encode("some text \u4E2D", {});
      Check(ids.ok());
      for (const int32_t id : *ids) Check(id >= 0 && id < (*tokenizer)->vocab_size());
    }
    const auto weights = skein::model::AsHuggingFaceWeights(*std::move(model));
    if (weights.ok()) {
      for (const TensorInfo& tensor : (*weights)->tensors()) {
        std::vector<Range> slice;
        for (const int64_t length : tensor.shape) slice.push_back({0, length});
        if (tensor.shape.size() > 1) slice[0] = {tensor.shape[0] / 4, tensor.shape[0]};
        int64_t elements = 1;
        for (const Range& range : slice) elements *= range.size();
        std::vector<std::byte> out(static_cast<size_t>(skein::DTypeBytes(tensor.dtype, elements)));
        Check((*weights)->Read(tensor, slice, absl::MakeSpan(out)).ok());
      }
    }
  }
  close(fd);
  return 0;
}
