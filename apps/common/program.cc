#include "apps/common/program.h"

#include "apps/common/training.h"

namespace lockstep::apps {

int run(int argc, char** argv, Program program) {
  return report_errors(program.name, [&] {
    CLI::App app(program.about, program.name);
    use_help_format(app);
    if (program.add_options) program.add_options(app);
    add_options(app, program.options);
    app.footer(program.examples);
    if (const int exit_code = parse(app, argc, argv); exit_code >= 0) return exit_code;
    const Model model = program.model(app, program.options);
    fill_defaults(app, program.options);
    return train(program.options, model);
  });
}

int run(int argc, char** argv, Program program, const std::string& model) {
  ModelDescription description{{"model", model}};
  program.add_options = [&description](CLI::App& app) { add_model_options(app, description); };
  program.model = [&description](const CLI::App&, Options&) { return named_model(description); };
  return run(argc, argv, std::move(program));
}

}  // namespace lockstep::apps
