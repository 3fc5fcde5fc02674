"""The page, driven by its widgets without a browser: edit, train, pause, stop, resume, compare."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import zoo
from zoo.dashboard import Dashboard
from zoo.dashboard.program import program_for

#: Each test goes on with the page as the one before it has left it.
pytestmark = pytest.mark.full

STEPS = 200_000  # more than are taken: it is stopped


@pytest.fixture(scope='module')
def page(tmp_path_factory):
    made = Dashboard(runs=tmp_path_factory.mktemp('runs'))
    yield made
    made.stop()
    if made.training is not None:
        made.training.wait(300)


def until(page, condition, seconds=300.0):
    """Wait, as somebody who looks at the page does, without calling it."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, (page.training and page.training.state, page.message.said, page.watch.said.value)
        time.sleep(0.1)


def edit(page, name, text):
    page.form.row(name).input.value = text
    return page.form.row(name).input.value


def refusal(page, name):
    return page.form.row(name).checked.refusal


def test_what_is_refused_stays_in_its_field_with_the_reason(page):
    assert edit(page, 'gamma', '1.5') == '1.5' and refusal(page, 'gamma') == 'gamma is 1.5: give a number from 0 to 1.'
    assert edit(page, 'gamma', 'often') == 'often' and refusal(page, 'gamma').startswith("gamma is 'often': give")
    assert not page.experiment.params() and page.form.row('gamma').reset.layout.visibility == 'visible'
    assert edit(page, 'net_list[0]', 'hidden=[0]') == 'hidden=[0]'
    assert 'positive whole numbers' in refusal(page, 'net_list[0]')
    assert edit(page, 'roles', 'xx') == 'xx' and "roles is 'xx': give a dict" in refusal(page, 'roles')
    page.start_button.click()
    told = 'not started, since a value is refused: correct net_list[0], gamma, roles first.'
    assert page.message.said == told and page.training is None
    for name in ('net_list[0]', 'roles'):
        page.form.row(name).reset.click()
        assert refusal(page, name) == ''
    assert edit(page, 'gamma', '0.9') == '0.9' and refusal(page, 'gamma') == ''
    assert page.experiment.params() == {'gamma': 0.9}


def test_a_network_goes_from_a_spec_to_code_and_back(page):
    row = page.form.row('net_list[0]')
    edit(page, 'net_list[0]', 'hidden=[32]')
    row.pick.value = 'Python code'
    row.code.value = '1 +'
    assert row.code.value == '1 +' and 'no Python' in refusal(page, 'net_list[0]')
    row.pick.value = 'as written below'
    assert refusal(page, 'net_list[0]') == '' and row.input.layout.display == ''
    assert page.experiment.field('net_list[0]').value['hidden'] == [32]
    row.pick.value = 'Python code'
    row.code.value = 'import keras\nkeras.Sequential([keras.layers.Dense(8)])'
    assert page.experiment.has_sources()
    row.pick.value = 'as written below'
    assert not page.experiment.has_sources() and 'net_list[0]' not in page.experiment.own_edits


def test_a_refused_choice_stays_in_its_field_with_the_reason(page):
    fields = page.choices.fields
    page.choices.env_id.value = 'Acrobot-v1'
    page.choices.env_type.value = 'rlbench'
    assert page.choices.env_type.value == 'rlbench' and 'PyPI' in fields['env_type'].refusal
    assert page.experiment.env_type == 'classic_control'
    page.choices.env_type.value = 'classic_control'
    assert fields['env_type'].refusal == '' and page.choices.env_id.value == 'Acrobot-v1'
    page.choices.env_type.value = 'rlbench'
    page.choices.env_id.value = 'CartPole-v1'  # an environment of the type that is in force
    assert fields['env_type'].refusal == '' and page.choices.env_type.value == 'classic_control'
    page.choices.arguments['nenv'].value = '0'
    assert page.choices.arguments['nenv'].value == '0' and 'nenv is the number of copies' in fields['nenv'].refusal
    page.choices.alg.value = 'A2C'  # another field is accepted, and this one stays as it is
    assert page.choices.arguments['nenv'].value == '0' and page.choices.refused == ['copies']
    page.choices.arguments['nenv'].value = '1'
    page.choices.alg.value = 'PPO'
    assert page.choices.refused == []


def test_choosing_shows_what_was_chosen(page):
    page.choices.env_id.value, page.choices.alg.value = 'CartPole-v1', 'PPO'
    edit(page, 'gamma', '0.9')
    page.choices.env_id.value = 'Pendulum-v1'
    page.choices.alg.value = 'SAC'
    assert (
        'TD3' in page.choices.alg.options
        and 'data:image/png' in page.seen.frame.value
        and 'data:image/png' in page.seen.diagram.value
    )
    assert 'Box(-2.0, 2.0, (1,), float32)' in page.seen.spaces.value
    page.choices.env_id.value = 'CartPole-v1'
    page.choices.alg.value = 'PPO'
    assert page.experiment.field('gamma').value == 0.9  # the edits of an algorithm stay with it


def test_edited_parameters_are_marked_and_reset(page):
    page.choices.env_id.value, page.choices.alg.value = 'CartPole-v1', 'PPO'
    edit(page, 'gamma', '0.9')
    page.form.group.value = 'edited'
    assert 'default 0.98' in page.form.row('gamma').label.value
    assert page.form.list.children == (page.form.row('gamma').box,)
    page.form.row('gamma').reset.click()
    assert page.form.row('gamma').input.value == '0.98' and not page.experiment.params()
    page.form.filter.value = 'advantage'
    assert page.form.row('gae_lambda').box in page.form.list.children
    page.form.filter.value = ''


@pytest.fixture(scope='module')
def stopped(page):
    """A run that was edited, trained, paused, let go on and stopped."""
    for name, text in (('gamma', '0.95'), ('train_steps', str(STEPS)), ('horizon', '64'), ('log_every', '256')):
        edit(page, name, text)
    page.form.row('net_list[0]').pick.value = '256, 256 · relu'
    page.start_button.click()
    assert page.message.said == '' and page.start_button.disabled
    until(page, lambda: page.training.state == 'training' and page.training.steps > 0)
    page.pause_button.click()
    until(page, lambda: page.training.state == 'paused')
    paused = page.training.steps
    time.sleep(1.2)  # more than one look
    assert page.training.steps == paused and page.pause_button.description == 'Go on'
    page.pause_button.click()
    until(page, lambda: page.training.steps > paused + 600 and 'polyline' in page.watch.returns.value)
    page.stop_button.click()
    until(page, lambda: page.training.state == 'stopped')
    return page.training.run_dir


def test_a_training_pauses_goes_on_and_stops_with_a_checkpoint(page, stopped):
    run = zoo.open_run(stopped)
    assert run.checkpoints and 0 < run.steps < STEPS
    until(page, lambda: not page.start_button.disabled)  # the look that has seen the stop shows the rest, too
    assert page.pause_button.disabled and page.stop_button.disabled
    assert 'loss' not in page.watch.said.value and 'Interrupted at step' in page.watch.said.value
    assert run.config['params']['gamma'] == 0.95 and run.config['net_list'][0]['hidden'] == [256, 256]
    until(page, lambda: 'data:image/webp' in page.watch.film.box.value)  # an episode of the agent that was saved


def test_the_program_does_the_same(page, stopped, tmp_path, monkeypatch):
    monkeypatch.setenv('ZOO_RUNS', str(tmp_path))
    program = (stopped / 'program.py').read_text()
    assert program == program_for(page.experiment) and "learn_params['horizon'] = 64" in program
    keeps_best = 'callbacks=[callbacks.KeepBest()'
    assert keeps_best in program
    exec(program.replace(keeps_best, f'{keeps_best}, lambda t: t.steps < 1000'), {})
    same, run = zoo.list_runs(tmp_path)[0], zoo.open_run(stopped)
    assert same.config | {'callbacks': []} == run.config  # without the one that ends it
    rows = [row for row, step in enumerate(same.progress['step']) if step < min(run.steps, 1000)]
    for column, values in same.progress.items():
        if column != 'speed/steps_per_second' and not column.startswith('test/'):  # tests depend on the time
            own = run.progress[column]
            assert [own[row] for row in rows] == [values[row] for row in rows], column


def test_a_stopped_run_is_resumed_to_its_end(page, stopped):
    before = int(zoo.open_run(stopped).checkpoints[-1].name)
    page.table.filter.value = 'gamma=0.95'
    page.table.lines[0].open.click()
    resume = page.table.detail_box.children[0].children[0]
    resume.click()
    assert 'goes on' in page.runs_message.said
    until(page, lambda: page.training.state == 'training' and page.training.steps > before)
    page.start_button.click()
    assert 'a training is under way' in page.message.said
    page.stop_button.click()
    until(page, lambda: page.training.state == 'stopped')
    assert page.training.run_dir == stopped and int(zoo.open_run(stopped).checkpoints[-1].name) > before


def test_runs_are_listed_overlaid_taken_over_saved_and_loaded(page, stopped, tmp_path):
    until(page, lambda: not page.watch.film.filming)
    given = {'gamma': 0.5, 'train_steps': 512, 'explore_steps': 2000}  # which updates nothing, so nothing is compiled
    zoo.train('DQN', 'CartPole-v1', run_dir=stopped.parent / 'other', **given)
    page.table.filter.value = ''
    page.table.headers['begun'].click()
    shown = [line.row.name for line in page.table.lines if line.box.layout.display != 'none']
    assert set(shown) == {stopped.name, 'other'}
    for line in page.table.lines[:2]:
        line.tick.value = True
    assert page.table.chart.value.count('<polyline') == 2
    page.table.lines[shown.index('other')].open.click()
    assert 'alg_params[&#x27;gamma&#x27;] = 0.5' in page.table.details.value
    buttons = {child.description: child for child in page.table.detail_box.children[0].children}
    buttons['save'].click()
    assert 'no folder is given' in page.runs_message.said
    page.save_path.value = str(tmp_path / 'agent')
    buttons['save'].click()
    assert 'is saved' in page.runs_message.said and zoo.load(tmp_path / 'agent').gamma == 0.5
    buttons['load'].click()
    assert page.agent.gamma == 0.5 and 'step 512' in page.runs_message.said
    buttons['take over'].click()
    assert page.choices.alg.value == 'DQN' and page.form.row('gamma').input.value == '0.5'
    assert page.experiment.params() == given


def test_an_earlier_training_is_shown_only_beside_its_own_settings(page, stopped):
    origin = page._origins[stopped].snapshot()  # as the button 'take over' does
    page.experiment = origin
    page._show_experiment()
    page.resume(stopped)
    until(page, lambda: page.training.state == 'training')
    page.view.value = 'training'
    assert page._stage.children == (page.watch.box,) and page.watch.changed.value == ''
    page.choices.alg.value = 'A2C'  # a training under way stays in view, and says what it is
    assert page._stage.children == (page.watch.box,) and 'The fields have changed' in page.watch.changed.value
    page.stop_button.click()
    until(page, lambda: page.training.state == 'stopped' and not page.start_button.disabled)
    assert page._stage.children == (page.watch.idle,) and page.film_button.disabled
    page.choices.alg.value = 'PPO'
    assert page._stage.children == (page.watch.box,) and not page.film_button.disabled
    edit(page, 'gamma', '0.97')
    assert page._stage.children == (page.watch.idle,)
    edit(page, 'gamma', '0.95')
    assert page._stage.children == (page.watch.box,)


def test_a_film_of_an_opened_run_is_shown_with_that_run(page, stopped):
    until(page, lambda: not page.watch.film.filming)
    before = page.watch.film.box.value
    page.table.show()
    shown = {line.row.name: line for line in page.table.lines if line.row is not None}
    shown[stopped.name].open.click()
    buttons = {child.description: child for child in page.table.detail_box.children[0].children}
    buttons['film'].click()
    until(page, lambda: 'data:image/webp' in page.table.film.box.value)
    assert page.watch.film.box.value == before
    shown['other'].open.click()
    assert page.table.film.box.value == ''


def test_without_widgets_it_says_what_to_install():
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        'try:\n    from zoo.dashboard import Dashboard\nexcept ImportError as error:\n    print(error)'
    )
    told = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout
    assert told.startswith("the dashboard needs Jupyter's widgets: pip install 'zoo-rl[notebook]'")


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    import nbclient
    import nbformat

    path = Path(__file__).parents[2] / 'notebooks' / 'dashboard.ipynb'
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get('outputs') for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={'metadata': {'path': str(tmp_path)}}).execute()
    shown = [output.get('data', {}) for cell in notebook.cells for output in cell.get('outputs', [])]
    assert any('application/vnd.jupyter.widget-view+json' in data for data in shown)
