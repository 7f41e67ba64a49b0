#include "text/chat/number_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/chat/runtime.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

std::string Print(const char* format, int64_t precision, double value) {
  const int digits = static_cast<int>(std::min<int64_t>(precision, 1 << 20));
  const int size = std::snprintf(nullptr, 0, format, digits, value);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), format, digits, value);
  text.pop_back();
  return text;
}

// Without type but with a precision: like g, but a result without exponent keeps one digit behind the point, and that
// digit counts when the exponent is chosen.
std::string GeneralWithPoint(double value, int64_t precision, bool alternate) {
  precision = std::max<int64_t>(precision, 1);
  const std::string scientific = Print("%.*e", precision - 1, value);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  std::string text;
  if (alternate) {
    return exponent < -4 || exponent >= precision - 1 ? Print("%#.*e", precision - 1, value)
                                                      : Print("%#.*g", precision, value);
  }
  if (exponent < -4 || exponent >= precision - 1) {
    text = scientific;
    size_t e = text.find('e');
    if (text.find('.') != std::string::npos) {
      size_t end = e;
      while (text[end - 1] == '0') --end;
      if (text[end - 1] == '.') --end;
      text.erase(end, e - end);
    }
    return text;
  }
  text = Print("%.*g", precision, value);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

}  // namespace

std::string FloatDigits(double value, char type, int64_t precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(value)) {
    std::string text = std::isnan(value) ? "nan" : "inf";
    if (upper) text = Upper(text);
    return type == '%' ? text + "%" : text;
  }
  if (type == 0 && precision >= 0) return GeneralWithPoint(value, precision, alternate);
  if (type == 0) {
    std::string text = FloatRepr(value);
    const size_t e = text.find('e');
    if (alternate && e != std::string::npos && text.find('.') == std::string::npos) text.insert(e, ".");
    return text;
  }
  if (precision < 0) precision = 6;
  switch (type) {
    case 'e': return Print(alternate ? "%#.*e" : "%.*e", precision, value);
    case 'E': return Print(alternate ? "%#.*E" : "%.*E", precision, value);
    case 'f':
    case 'F': return Print(alternate ? "%#.*f" : "%.*f", precision, value);
    case 'G': return Print(alternate ? "%#.*G" : "%.*G", precision, value);
    case '%': return Print(alternate ? "%#.*f" : "%.*f", precision, value * 100) + "%";
    default: return Print(alternate ? "%#.*g" : "%.*g", precision, value);
  }
}

std::string AsciiRepr(std::string_view repr) {
  std::string out;
  for (size_t i = 0; i < repr.size();) {
    const uint32_t c = NextCodePoint(repr, &i);
    if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\U{:08x}", c);
    }
  }
  return out;
}

}  // namespace nunspark::text::jinja
