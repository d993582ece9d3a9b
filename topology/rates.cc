#include "topology/rates.h"

#include "absl/strings/str_format.h"

namespace skein::topology {

std::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kUnknown:
      return "";
    case Origin::kModelled:
      return "modelled";
    case Origin::kMeasured:
      return "measured";
  }
  return "";
}

std::string OriginText(Origin origin, double spread) {
  std::string text(OriginName(origin));
  if (origin == Origin::kMeasured && spread > 0) {
    absl::StrAppendFormat(&text, " ±%.2g%%", 100 * spread);
  }
  return text;
}

std::string_view ExchangeName(Exchange exchange) {
  switch (exchange) {
    case Exchange::kAllReduce:
      return "all_reduce";
    case Exchange::kAllGather:
      return "all_gather";
    case Exchange::kSendReceive:
      return "send_receive";
    case Exchange::kSendToAwake:
      return "send_to_awake";
    case Exchange::kTokenReturn:
      return "token_return";
  }
  return "";
}

}  // namespace skein::topology
