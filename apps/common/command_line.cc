#include "apps/common/command_line.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <system_error>

#include "apps/common/standard_output.h"

namespace lockstep::apps {
namespace {

constexpr int kExitUsage = 2;

class Help : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    constexpr size_t kWidth = 80, kColumn = 26;
    const std::string indent(kColumn, ' ');
    std::string text = "  " + make_option_name(option, is_positional) + make_option_opts(option);
    text += text.size() < kColumn ? std::string(kColumn - text.size(), ' ') : "\n" + indent;
    size_t column = kColumn;
    std::istringstream words(make_option_desc(option));
    for (std::string word; words >> word; column += word.size()) {
      const bool first = column == kColumn;
      if (!first && column + 1 + word.size() > kWidth) {
        text += "\n" + indent;
        column = kColumn;
      } else if (!first) {
        text += " ";
        ++column;
      }
      text += word;
    }
    return text + "\n";
  }

  std::string make_option_opts(const CLI::Option* option) const override {  // versions of CLI11 differ here
    if (option->get_type_size() == 0) return "";
    std::string text = " " + option->get_type_name();
    if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
    if (option->get_expected_max() > 1) text += " ...";
    if (option->get_required()) text += " REQUIRED";
    return text;
  }
};

}  // namespace

void use_help_format(CLI::App& app) {
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<Help>());
}

int parse(CLI::App& app, int argc, char** argv) {
  reserve_standard_streams();
  try {
    app.parse(argc, argv);
    return -1;
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    const int exit_code = app.exit(help, text, text);
    return report_errors(app.get_name(), [&] {
      fmt::print("{}", text.str());
      return exit_code;
    });
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::string asked = app.remaining().front();
    const std::optional<std::string> near = near_name(asked, names);
    print_notice(fmt::format("{}: unknown argument '{}'{} See --help", app.get_name(), asked,
                             near ? fmt::format(", did you mean '{}'?", *near) : "."));
  } catch (const CLI::ParseError& error) {
    print_notice(fmt::format("{}: {}. See --help", app.get_name(), error.what()));
  }
  return kExitUsage;
}

int report_errors(const std::string& program, const std::function<int()>& work) {
  try {
    const int exit_code = work();
    flush_output();
    return exit_code;
  } catch (const std::system_error& error) {  // fmt::print's, whose message does not say where to
    print_notice(fmt::format("{}: {}", program,
                             std::ferror(stdout) != 0
                                 ? "standard output: cannot write: " + error.code().message()
                                 : error.what()));
  } catch (const std::exception& error) {
    print_notice(fmt::format("{}: {}", program, error.what()));
  }
  return 1;
}

void check_value(bool good, const char* option, double value, const char* wanted) {
  if (!good) throw Error(fmt::format("{} is {}: use {}", option, value, wanted));
}

}  // namespace lockstep::apps
