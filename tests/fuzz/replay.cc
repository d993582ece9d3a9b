// Gives every file of the folders named on the command line to a fuzz target, once: what fuzzing
// found and its corpus hold in every run of the tests, without libFuzzer.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      const std::string bytes = skein::ReadFileOrEmpty(entry.path());
      std::printf("%s\n", entry.path().c_str());
      std::fflush(stdout);  // the last one is at fault
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++inputs;
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
