#include "model/format/open.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "model/format/safetensors.h"

namespace skein::model {

absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorSource(const std::string& folder_or_file) {
  if (std::filesystem::path(folder_or_file).extension() == ".gguf") {
    return absl::UnimplementedError(
        absl::StrCat(folder_or_file, ": Skein reads safetensors, not yet GGUF"));
  }
  return OpenSafetensors(folder_or_file);
}

}  // namespace skein::model
