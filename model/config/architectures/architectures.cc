#include <string>

#include "absl/strings/str_cat.h"
#include "model/config/architectures/architecture.h"

namespace skein::model {

absl::Span<const Architecture> Architectures() {
  static const Architecture kAll[] = {kLlama,    kMistral, kMixtral, kQwen2,  kQwen3,   kQwen2Moe,
                                      kQwen3Moe, kPhi3,    kGemma2,  kGemma3, kGranite, kSmolLm3};
  return kAll;
}

std::string ArchitectureNames() {
  std::string names;
  for (const Architecture& architecture : Architectures()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(architecture.name));
  }
  return names;
}

}  // namespace skein::model
