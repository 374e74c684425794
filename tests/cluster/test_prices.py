"""Prices and rates of GPUs: files that name their sources, and messages on those that do not."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from cluster.cost.prices import Price, read_prices
from cluster.cost.rates import read_rates
from cluster.errors import ClusterError

GOOD = "currency: EUR\ngpus:\n  H100: {price: 2.5, source: our contract, date: 2026-11-01}\n"


def test_no_price_ships_with_warpsmith() -> None:
    prices = read_prices()
    assert prices.gpus == {}
    assert Path(prices.origin).is_file()


def test_a_price_has_its_source_and_its_date(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(GOOD)
    prices = read_prices(tmp_path / "prices.yaml")
    assert prices.currency == "EUR"
    assert prices.gpus == {"H100": Price(2.5, "our contract", datetime.date(2026, 11, 1))}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("source: our contract, ", ""), "source"),
        (GOOD.replace(", date: 2026-11-01", ""), "date"),
        (GOOD.replace("2.5", "0"), "must be more than 0"),
        (GOOD.replace("our contract", "''"), "where the price stands"),
        (GOOD.replace("price: 2.5", "price: 2.5, spot: true"), "spot"),
        ("gpus: [", "correct it"),
    ],
)
def test_a_file_of_another_form_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(ClusterError, match=message) as refused:
        read_prices(file)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_shipped_rate_has_its_source() -> None:
    rates = read_rates()
    assert rates
    assert all(rate.source and rate.preset for rate in rates.values())


def test_a_rate_without_a_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rates.yaml").write_text("L40S: {evaluations_an_hour: 900, preset: fast, source: ' '}")
    with pytest.raises(ClusterError, match=r"L40S\.source"):
        read_rates(tmp_path / "rates.yaml")
    with pytest.raises(ClusterError, match="cannot be read"):
        read_rates(tmp_path / "absent.yaml")
