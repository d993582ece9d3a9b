#include "topology/pci_address.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace skein::topology {

std::string PciAddress(std::string_view text) {
  std::string address = absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
  const size_t domain = address.find(':');
  if (domain == std::string::npos || domain < 4 || domain > 8) return "";
  const absl::string_view kBehind = ":xx:xx.x";
  if (address.size() != domain + kBehind.size()) return "";
  for (size_t i = 0; i < address.size(); ++i) {
    const char expected = i < domain ? 'x' : kBehind[i - domain];
    if (expected == 'x' ? !absl::ascii_isxdigit(address[i]) : address[i] != expected) return "";
  }
  // The kernel pads domains to four digits.
  size_t zeros = 0;
  while (zeros + 4 < domain && address[zeros] == '0') ++zeros;
  return address.substr(zeros);
}

}  // namespace skein::topology
