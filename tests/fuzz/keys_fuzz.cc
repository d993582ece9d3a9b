// Parses any bytes as a file of API keys. What is accepted is the same when it is written and read
// again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "serving/keys/key_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto keys =
      skein::serving::ParseKeys(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!keys.ok()) return 0;
  std::string text;
  for (const skein::serving::ApiKey& key : *keys) text += skein::serving::KeyLine(key) + "\n";
  const auto again = skein::serving::ParseKeys(text);
  if (!again.ok() || *again != *keys) std::abort();
  return 0;
}
