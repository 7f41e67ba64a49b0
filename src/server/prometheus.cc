#include "server/prometheus.h"

#include <iterator>

#include <fmt/format.h>

namespace nunspark::server {

PrometheusText::PrometheusText(std::string_view model) {
  for (const char c : model) {
    if (c == '"' || c == '\\') model_ += '\\';
    model_ += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
}

void PrometheusText::Head(std::string_view type, std::string_view name, std::string_view help) {
  fmt::format_to(std::back_inserter(text_), "# HELP nunspark_{0} {1}\n# TYPE nunspark_{0} {2}\n", name, help, type);
}

void PrometheusText::Counter(std::string_view name, std::string_view help, int64_t value) {
  Head("counter", name, help);
  fmt::format_to(std::back_inserter(text_), "nunspark_{}{{model=\"{}\"}} {}\n", name, model_, value);
}

void PrometheusText::Gauge(std::string_view name, std::string_view help, int64_t value) {
  Head("gauge", name, help);
  fmt::format_to(std::back_inserter(text_), "nunspark_{}{{model=\"{}\"}} {}\n", name, model_, value);
}

void PrometheusText::Counters(std::string_view name, std::string_view help, std::string_view label,
                              const Values& values) {
  Head("counter", name, help);
  for (const auto& [which, value] : values) {
    fmt::format_to(std::back_inserter(text_), "nunspark_{}{{model=\"{}\",{}=\"{}\"}} {}\n", name, model_, label, which,
                   value);
  }
}

void PrometheusText::Histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                               std::span<const int64_t> counts, double sum) {
  Head("histogram", name, help);
  int64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    fmt::format_to(std::back_inserter(text_), "nunspark_{}_bucket{{model=\"{}\",le=\"{}\"}} {}\n", name, model_,
                   i < bounds.size() ? fmt::format("{}", bounds[i]) : "+Inf", below);
  }
  fmt::format_to(std::back_inserter(text_),
                 "nunspark_{0}_sum{{model=\"{1}\"}} {2}\nnunspark_{0}_count{{model=\"{1}\"}} {3}\n", name, model_, sum,
                 below);
}

}  // namespace nunspark::server
