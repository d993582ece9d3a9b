// Files for tests of the format readers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace skein::model {

// A fresh empty folder of the running test.
inline std::string FreshFolder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  static int count = 0;
  const std::string folder =
      testing::TempDir() + "/" + test->name() + "-" + std::to_string(count++);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

inline void WriteTestFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  ASSERT_TRUE(file.good()) << path;
}

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// A safetensors file, stated by hand so that it does not depend on the writer.
inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  return LittleEndian64(header.size()) + std::string(header) + std::string(data);
}

}  // namespace skein::model
