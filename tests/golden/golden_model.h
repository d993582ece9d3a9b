// The models of tests/golden/models, ready to serve text.
#pragma once

#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace skein::testing {

// A folder, of the test's own, with the model of this name and a vocabulary of the 256 bytes, which
// all of these models have room for. Needs //tests/golden:models and :text as data. Throws what
// std::filesystem throws.
inline std::string GoldenModel(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::filesystem::copy(std::filesystem::path("tests/golden/models") / name, folder);
  std::filesystem::copy_file("tests/golden/byte_tokenizer.json", folder / "tokenizer.json");
  return folder;
}

}  // namespace skein::testing
