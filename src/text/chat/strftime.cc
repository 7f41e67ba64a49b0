// time.strftime in the C locale, as glibc does it.
#include <fmt/format.h>

#include <cstdint>

#include "text/chat/builtin_tables.h"

namespace nunspark::text::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

bool IsLeap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

// Days since 1970-01-01 of the proleptic Gregorian calendar.
int64_t DaysFromCivil(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

class TimeFormatter {
 public:
  explicit TimeFormatter(const CivilTime& time) : t_(time) {
    days_ = DaysFromCivil(t_.year, t_.month, t_.day);
    weekday_ = static_cast<int>(((days_ + 4) % 7 + 7) % 7);  // 0 is Sunday
    year_day_ = static_cast<int>(days_ - DaysFromCivil(t_.year, 1, 1));
    month_ = static_cast<size_t>((t_.month + 11) % 12);
  }

  std::string Format(std::string_view format) const {
    std::string out;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        out.push_back(format[i]);
        continue;
      }
      const size_t begin = i;
      char flag = 0;
      ++i;
      while (i < format.size() && std::string_view("-_0^#").find(format[i]) != std::string_view::npos)
        flag = format[i++];
      size_t width = 0;
      for (; i < format.size() && format[i] >= '0' && format[i] <= '9' && width < 1000; ++i) {
        width = width * 10 + static_cast<size_t>(format[i] - '0');
      }
      if (i < format.size() && (format[i] == 'E' || format[i] == 'O')) ++i;
      const char code = i < format.size() ? format[i] : '\0';
      std::string text;
      if (!Conversion(code, flag, &text)) {
        out += format.substr(begin, i + 1 - begin);
        continue;
      }
      const bool is_text = std::string_view("aAbBhpPZcxXrDFTRn%t").find(code) != std::string_view::npos;
      if (text.size() < width) text.insert(0, width - text.size(), is_text || flag == '_' ? ' ' : '0');
      out += text;
    }
    return out;
  }

 private:
  // A number of at least `width` digits, padded with `pad` unless the flag asks otherwise.
  static std::string Number(int64_t value, size_t width, char flag, char pad = '0') {
    std::string digits = std::to_string(value);
    if (flag == '-') return digits;
    if (flag == '_') pad = ' ';
    if (flag == '0') pad = '0';
    if (digits.size() < width) digits.insert(0, width - digits.size(), pad);
    return digits;
  }
  static std::string Name(std::string_view name, char flag) {
    std::string text(name);
    if (flag == '^' || flag == '#') {
      for (char& c : text) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
      }
    }
    return text;
  }
  int Hour12() const { return t_.hour % 12 == 0 ? 12 : t_.hour % 12; }
  // ISO 8601 week and the year it belongs to.
  void IsoWeek(int* year, int* week) const {
    const int from_monday = (weekday_ + 6) % 7;
    *year = t_.year;
    int w = (year_day_ - from_monday + 10) / 7;
    if (w < 1) {
      --*year;
      const int last_year_days = IsLeap(*year) ? 366 : 365;
      w = (year_day_ + last_year_days - from_monday + 10) / 7;
    } else if (w == 53) {
      const int days = IsLeap(t_.year) ? 366 : 365;
      if (year_day_ - from_monday + 3 >= days) {
        ++*year;
        w = 1;
      }
    }
    *week = w;
  }

  bool Conversion(char code, char flag, std::string* out) const {
    int iso_year = 0, iso_week = 0;
    IsoWeek(&iso_year, &iso_week);
    switch (code) {
      case 'a': *out = Name(kDays[static_cast<size_t>(weekday_)].substr(0, 3), flag); return true;
      case 'A': *out = Name(kDays[static_cast<size_t>(weekday_)], flag); return true;
      case 'b':
      case 'h': *out = Name(kMonths[month_].substr(0, 3), flag); return true;
      case 'B': *out = Name(kMonths[month_], flag); return true;
      case 'c': *out = Format("%a %b %e %H:%M:%S %Y"); return true;
      case 'C': *out = Number(t_.year / 100, 2, flag); return true;
      case 'd': *out = Number(t_.day, 2, flag); return true;
      case 'D':
      case 'x': *out = Format("%m/%d/%y"); return true;
      case 'e': *out = Number(t_.day, 2, flag, ' '); return true;
      case 'f': *out = "000000"; return true;  // microseconds, which a civil time here has none of
      case 'F': *out = Format("%Y-%m-%d"); return true;
      case 'g': *out = Number(iso_year % 100, 2, flag); return true;
      case 'G': *out = Number(iso_year, 1, flag); return true;
      case 'H': *out = Number(t_.hour, 2, flag); return true;
      case 'I': *out = Number(Hour12(), 2, flag); return true;
      case 'j': *out = Number(year_day_ + 1, 3, flag); return true;
      case 'k': *out = Number(t_.hour, 2, flag, ' '); return true;
      case 'l': *out = Number(Hour12(), 2, flag, ' '); return true;
      case 'm': *out = Number(t_.month, 2, flag); return true;
      case 'M': *out = Number(t_.minute, 2, flag); return true;
      case 'n': *out = "\n"; return true;
      case 'p': *out = flag == '#' ? (t_.hour < 12 ? "am" : "pm") : (t_.hour < 12 ? "AM" : "PM"); return true;
      case 'P': *out = t_.hour < 12 ? "am" : "pm"; return true;
      case 'r': *out = Format("%I:%M:%S %p"); return true;
      case 'R': *out = Format("%H:%M"); return true;
      case 's': *out = std::to_string(days_ * 86400 + t_.hour * 3600 + t_.minute * 60 + t_.second); return true;
      case 'S': *out = Number(t_.second, 2, flag); return true;
      case 't': *out = "\t"; return true;
      case 'T':
      case 'X': *out = Format("%H:%M:%S"); return true;
      case 'u': *out = Number(weekday_ == 0 ? 7 : weekday_, 1, flag); return true;
      case 'U': *out = Number((year_day_ + 7 - weekday_) / 7, 2, flag); return true;
      case 'V': *out = Number(iso_week, 2, flag); return true;
      case 'w': *out = Number(weekday_, 1, flag); return true;
      case 'W': *out = Number((year_day_ + 7 - (weekday_ + 6) % 7) / 7, 2, flag); return true;
      case 'y': *out = Number(t_.year % 100, 2, flag); return true;
      case 'Y': *out = Number(t_.year, 1, flag); return true;
      case 'z':
      case 'Z': *out = ""; return true;  // a naive time has no zone
      case '%': *out = "%"; return true;
      default: return false;
    }
  }

  const CivilTime t_;
  int64_t days_;
  int weekday_, year_day_;
  size_t month_;
};

}  // namespace

std::string FormatTime(const CivilTime& time, std::string_view format) { return TimeFormatter(time).Format(format); }

}  // namespace nunspark::text::jinja
