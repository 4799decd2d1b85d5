"""A configuration is resolved, or every fault in it is said at once."""

from types import ModuleType
from typing import Any

import pytest

from rllm.config.loading import load_train_config
from rllm.config.schema import TrainConfig
from rllm.errors import ConfigError
from rllm.trainer.agent_trainer import AgentTrainer
from rllm.trainer.plan import Sources, make_plan

TABLE = {"model.name": "table", "backend.name": "rllm.testing.table:TableBackend"}


def config(**changes: Any) -> TrainConfig:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return load_train_config(None, (), {**TABLE, **given}).config


def faults(sources: Sources | None = None, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make_plan(config(**changes), sources)
    return "\n".join(caught.value.faults)


@pytest.fixture
def python(table: ModuleType) -> Sources:
    return Sources(agent_flow=table.ask, evaluator=table.digits, train_dataset=table.TASKS)


def test_what_is_given_in_python_needs_no_names(python: Sources) -> None:
    plan = make_plan(config(), python)
    assert (plan.title, len(plan.train_tasks), plan.val_tasks) == ("ask", 6, [])
    assert plan.loss.name == "policy_gradient"
    assert plan.train_sampling["temperature"] == 1.0
    assert plan.validation_sampling["temperature"] == 0.0
    assert plan.validation_sampling["max_tokens"] == plan.train_sampling["max_tokens"]


def test_nothing_to_train_on_and_nothing_to_grade_with_are_two_faults() -> None:
    text = faults()
    assert "nothing to train on" in text
    assert "nothing grades the rollouts" in text


def test_an_option_that_nothing_would_read_is_refused(python: Sources) -> None:
    assert "agent.options" in faults(python, agent__options={"turns": 3})
    assert "agent.name" in faults(python, agent__name="react")
    assert "validation.every=5" in faults(python, validation__every=5)
    assert "algorithm.params.epz" in faults(python, algorithm__params={"epz": 1.0})


def test_a_loss_that_nobody_knows_is_one_fault_that_lists_those_there_are(python: Sources) -> None:
    text = faults(python, algorithm__loss="ppoclip")
    assert text.count("ppoclip") == 1
    assert "ppo_clip" in text


def test_off_policy_minibatches_need_a_loss_that_minds(python: Sources) -> None:
    assert "optimizer.minibatches=2" in faults(python, optimizer__minibatches=2)


def test_a_filter_that_leaves_nothing_is_refused(python: Sources) -> None:
    assert "algorithm.filter.min_group=9" in faults(python, algorithm__filter={"min_group": 9})


def test_parameters_go_to_the_loss_and_to_the_estimator(python: Sources) -> None:
    plan = make_plan(config(algorithm__params={"eps": 0.5}), python)
    assert plan.estimator_params == {"eps": 0.5}
    plan = make_plan(config(algorithm__estimator="dr_grpo"), python)
    assert plan.loss.params["horizon"] == 256.0


def test_a_benchmark_with_two_tasks_of_one_id_is_refused(table: ModuleType) -> None:
    assert "'same' occurs twice" in faults(benchmark__name="table_plugin:Twins")


def test_an_agent_named_beside_a_whole_configuration_is_not_forgotten(python: Sources, table: ModuleType) -> None:
    trainer = AgentTrainer(agent_flow="react", config=config(), evaluator=table.digits, train_dataset=table.TASKS)
    assert trainer.plan.program.name == "react"
    assert trainer.config.agent.name == "react"
    with pytest.raises(ConfigError, match="contradicts"):
        AgentTrainer(
            agent_flow="bash", config=config(agent__name="react"), evaluator=table.digits, train_dataset=table.TASKS
        )


@pytest.mark.parametrize("name", ["table_plugin:ask", "table_plugin:plain"])
def test_a_function_may_be_named_by_its_path(table: ModuleType, name: str) -> None:
    plan = make_plan(config(agent__name=name), Sources(evaluator=table.digits, train_dataset=table.TASKS))
    assert plan.program.name == name
    assert hasattr(plan.program.harness, "run")


def test_a_path_to_something_that_is_no_agent_is_a_fault(table: ModuleType) -> None:
    text = faults(Sources(evaluator=table.digits, train_dataset=table.TASKS), agent__name="table_plugin:TASKS")
    assert "expected an agent function" in text
