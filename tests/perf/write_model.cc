// write_model SPEC FOLDER TOKENIZERS_FOLDER: writes a synthetic model as Hugging Face would, with
// another model's tokenizer. That one is smaller: ids beyond it have no text, which a load test,
// that sends and counts ids, does not need.
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/format/safetensors_writer.h"
#include "model/synthetic/synthetic.h"

namespace {

absl::Status WriteModel(const char* spec, const std::string& folder, const std::string& tokenizer) {
  SKEIN_ASSIGN_OR_RETURN(const skein::model::SyntheticModel model,
                         skein::model::ParseSyntheticSpec(spec));
  SKEIN_RETURN_IF_ERROR(
      skein::model::WriteModelFolder(model.config, *model.weights, folder, int64_t{1} << 30));
  for (const char* name : {"/tokenizer.json", "/tokenizer_config.json"}) {
    std::error_code error;
    std::filesystem::copy_file(tokenizer + name, folder + name, error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot copy ", tokenizer, name, ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: write_model SPEC FOLDER TOKENIZERS_FOLDER\n");
    return 2;
  }
  const absl::Status status = WriteModel(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "write_model: %s\n", std::string(status.message()).c_str());
  return 1;
}
