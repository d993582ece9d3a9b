#include "topology/formats/xml.h"

#include <algorithm>
#include <set>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"

namespace skein::topology {
namespace {

constexpr size_t kMostAttributes = 64;  // hwloc writes some 15

}  // namespace

std::string QuotedXml(std::string_view text) {
  return absl::StrCat("'", Printable(text, /*max_bytes=*/40), "'");
}

std::string PrintableAttribute(pugi::xml_node node, const char* name) {
  return Printable(node.attribute(name).value(), kMaxNameBytes);
}

absl::StatusOr<std::unique_ptr<XmlFile>> XmlFile::Parse(std::string_view text, const char* root,
                                                        const char* what, Doctype doctype) {
  if (text.size() > kMostXmlBytes) {
    return absl::InvalidArgumentError(absl::StrCat("more than a MiB: this is not ", what));
  }
  if (text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has bytes of 0: this is not ", what, ", or not in UTF-8"));
  }
  std::unique_ptr<XmlFile> file = absl::WrapUnique(new XmlFile(text));
  const pugi::xml_parse_result parsed = file->document_.load_buffer(
      text.data(), text.size(), pugi::parse_default | pugi::parse_doctype, pugi::encoding_utf8);
  if (!parsed) {
    return absl::InvalidArgumentError(
        absl::StrCat(file->LineAt(parsed.offset), "this is no XML: ", parsed.description()));
  }
  SKEIN_RETURN_IF_ERROR(file->CheckStart(root, what, doctype));
  SKEIN_RETURN_IF_ERROR(file->CheckLimits());
  return file;
}

std::string XmlFile::LineAt(ptrdiff_t offset) const {
  const auto end = text_.begin() + std::clamp<ptrdiff_t>(offset, 0, text_.size());
  return absl::StrCat("line ", 1 + std::count(text_.begin(), end, '\n'), ": ");
}

std::string XmlFile::Where(pugi::xml_node node) const { return LineAt(node.offset_debug()); }

absl::Status XmlFile::Error(pugi::xml_node node, std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(Where(node), std::string(what)));
}

absl::Status XmlFile::CheckStart(const char* root, const char* what, Doctype doctype) const {
  const std::string is_not = absl::StrCat(": this is not ", what);
  for (const pugi::xml_node node : document_) {
    if (node.type() == pugi::node_doctype) {
      if (doctype == Doctype::kRefused || absl::StrContains(node.value(), "[")) {
        return Error(node, "a <!DOCTYPE, which may declare anything: take it out");
      }
    } else if (node.type() == pugi::node_element && !(node == this->root())) {
      return Error(node, absl::StrCat("a second root, ", QuotedXml(node.name()), is_not));
    }
  }
  if (std::string_view(this->root().name()) == root) return absl::OkStatus();
  return Error(this->root(), absl::StrCat("the root is ", QuotedXml(this->root().name()),
                                          " and not '", root, "'", is_not));
}

absl::Status XmlFile::CheckLimits() const {
  int depth = 1;
  for (pugi::xml_node node = root(); node;) {
    if (depth > kMostXmlDepth) {
      return Error(node, absl::StrCat("more than ", kMostXmlDepth, " levels of elements"));
    }
    std::set<std::string_view> names;
    for (const pugi::xml_attribute attribute : node.attributes()) {
      if (!names.insert(attribute.name()).second) {
        return Error(node, absl::StrCat(QuotedXml(attribute.name()), " is twice there"));
      }
      if (names.size() > kMostAttributes) {
        return Error(node, absl::StrCat("more than ", kMostAttributes, " attributes"));
      }
    }
    if (node.first_child()) {
      node = node.first_child();
      ++depth;
      continue;
    }
    while (node != root() && !node.next_sibling()) {
      node = node.parent();
      --depth;
    }
    if (node == root()) break;
    node = node.next_sibling();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> XmlFile::Integer(pugi::xml_node node, const char* name,
                                                        int64_t least, int64_t most) const {
  const std::string value = node.attribute(name).value();
  if (value.empty()) return std::nullopt;
  int64_t number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < least || number > most) {
    return Error(
        node, absl::StrCat(name, "=", QuotedXml(value), " is no number of ", least, " to ", most));
  }
  return number;
}

absl::StatusOr<int64_t> XmlFile::RequiredInteger(pugi::xml_node node, const char* name,
                                                 int64_t least, int64_t most) const {
  SKEIN_ASSIGN_OR_RETURN(const std::optional<int64_t> number, Integer(node, name, least, most));
  if (number.has_value()) return *number;
  return Error(node, absl::StrCat("<", std::string(node.name()), "> without ", name));
}

absl::StatusOr<std::optional<Cpus>> XmlFile::Mask(pugi::xml_node node, const char* name) const {
  const std::string_view value = node.attribute(name).value();
  if (value.empty()) return std::nullopt;
  std::optional<Cpus> cpus = ParseCpuMask(value);
  if (cpus.has_value()) return cpus;
  return Error(node, absl::StrCat(name, "=", QuotedXml(value),
                                  " is no mask of at most 8192 processors, \"000000ff,ffff0000\""));
}

}  // namespace skein::topology
