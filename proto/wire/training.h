// Between the structs of proto/core/training.h and the messages of proto/training.proto. Total: any message
// that parses converts. In the messages' namespace, so that an argument finds them from every other one.
#pragma once

#include "proto/core/training.h"
#include "proto/training.pb.h"

namespace dtrun::training {

dtrun::DeviceMemory from_wire(const DeviceMemory& wire);
void to_wire(const dtrun::DeviceMemory& memory, DeviceMemory* wire);

dtrun::PhaseTimes from_wire(const PhaseTimes& wire);
void to_wire(const dtrun::PhaseTimes& times, PhaseTimes* wire);

dtrun::StepTimes from_wire(const StepTimes& wire);
void to_wire(const dtrun::StepTimes& times, StepTimes* wire);

dtrun::StepDurations from_wire(const StepDurations& wire);
void to_wire(const dtrun::StepDurations& durations, StepDurations* wire);

dtrun::Checkpoints from_wire(const Checkpoints& wire);
void to_wire(const dtrun::Checkpoints& checkpoints, Checkpoints* wire);

dtrun::Progress from_wire(const Progress& wire);
void to_wire(const dtrun::Progress& progress, Progress* wire);

dtrun::Completion from_wire(const Completion& wire);
void to_wire(const dtrun::Completion& completion, Completion* wire);

}  // namespace dtrun::training
