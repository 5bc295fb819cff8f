#include "apps/common/program.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "apps/common/training.h"
#include "kernels/check.h"
#include "kernels/step_mark.h"

namespace lockstep::apps {

namespace {

// Forecasts are made below the CUDA API, which reads its environment before anything else is done: so the
// program starts once more with it.
void ask_for_forecast(const std::string& gpu, const std::string& json, char** argv) {
  if (gpu.empty() && json.empty()) return;
  if (!kernels::can_forecast())
    throw Error(
        "--forecast is for a machine without a GPU: use ./lab --backend host, or leave it out and time the "
        "run");
  if (gpu.empty()) throw Error("--forecast-json needs --forecast: name the GPU, such as h200");
  const char* const asked = std::getenv("HOSTCUDA_FORECAST");
  if (asked != nullptr && asked == gpu) return;
  setenv("HOSTCUDA_FORECAST", gpu.c_str(), 1);
  if (!json.empty()) setenv("HOSTCUDA_FORECAST_JSON", json.c_str(), 1);
  execv("/proc/self/exe", argv);
  throw Error("--forecast: the program cannot be started again: set HOSTCUDA_FORECAST instead");
}

}  // namespace

int run(int argc, char** argv, Program program) {
  return report_errors(program.name, [&] {
    CLI::App app(program.about, program.name);
    use_help_format(app);
    if (program.add_options) program.add_options(app);
    add_options(app, program.options);
    std::string forecast_gpu, forecast_json;
    app.add_option("--forecast", forecast_gpu,
                   "Say at the end what a step would take on this GPU: h200, h100, a100, a6000, "
                   "rtx3060-laptop, t4 or a "
                   "file (docs/forecast.md). Run it as ./lab PROGRAM --forecast h200.")
        ->group("Output");
    app.add_option("--forecast-json", forecast_json, "Write the forecast to this file, as JSON.")
        ->group("Output");
    app.footer(program.examples);
    if (const int exit_code = parse(app, argc, argv); exit_code >= 0) return exit_code;
    ask_for_forecast(forecast_gpu, forecast_json, argv);
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
