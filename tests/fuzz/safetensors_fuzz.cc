// Opens any bytes as a safetensors file and, when that succeeds, reads every tensor, whole and in
// its middle.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "model/format/safetensors.h"

namespace {

using skein::Range;
using skein::model::TensorInfo;
using skein::model::TensorSource;

void Check(bool condition) {
  if (!condition) std::abort();
}

void ReadSlice(const TensorSource& source, const TensorInfo& tensor,
               const std::vector<Range>& slice) {
  int64_t elements = 1;
  for (const Range& range : slice) elements *= range.size();
  std::vector<std::byte> out(static_cast<size_t>(skein::DTypeBytes(tensor.dtype, elements)));
  Check(source.Read(tensor, slice, absl::MakeSpan(out)).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  Check(fd >= 0);
  Check(write(fd, data, size) == static_cast<ssize_t>(size));
  const auto source = skein::model::OpenSafetensors("/proc/self/fd/" + std::to_string(fd));
  if (source.ok()) {
    int64_t bytes = 0;
    for (const TensorInfo& tensor : (*source)->tensors()) {
      std::vector<Range> whole;
      std::vector<Range> middle;
      for (int64_t length : tensor.shape) {
        whole.push_back({0, length});
        middle.push_back({length / 4, length - length / 4});
      }
      ReadSlice(**source, tensor, whole);
      ReadSlice(**source, tensor, middle);
      bytes += skein::DTypeBytes(tensor.dtype, tensor.elements());
    }
    Check(bytes <= static_cast<int64_t>(size));
  }
  close(fd);
  return 0;
}
