#include "client/gguf_output.h"

#include "absl/strings/str_format.h"
#include "base/bench/report.h"
#include "base/flags/flags.h"
#include "base/units.h"

namespace skein::client {

void DeclareGgufOutput(CLI::App& command, std::string& out, int64_t& max_file_bytes) {
  command.add_option("OUT", out, "The GGUF file to write (*.gguf), which must not be there yet")
      ->required()
      ->check(NotEmpty());
  command
      .add_option(
          "--split", max_file_bytes,
          "Write files of at most so many bytes of tensors (4G: 2^32), which get names like "
          "OUT-00001-of-00003.gguf")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(InRange<int64_t>(1));
}

std::function<void(int64_t written, int64_t all)> GgufProgress() {
  return [](int64_t written, int64_t all) {
    ShowProgress(absl::StrFormat("%s of %s", FormatBytes(written), FormatBytes(all)));
  };
}

}  // namespace skein::client
