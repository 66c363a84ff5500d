# %% [markdown]
# # How late do flights leave?
#
# The topic `flights` has departures as JSON, as `make demo` sends them. Here they become a
# DataFrame, and the DataFrame two plots. Open this file as a notebook (Jupyter with jupytext, VS
# Code), or run it.
#
# `NAMESRV_ADDR` says where the cluster is, `NOTEBOOK_OUT` where the plot is saved.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = SparkSession.builder.getOrCreate()
names = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
out = Path(os.environ.get("NOTEBOOK_OUT", "."))

# %% [markdown]
# Bodies are parsed by a schema; what is no number in them is null. A flight without a time of
# departure was cancelled.

# %%
messages = (
    spark.read.format("roquet")
    .options(nameServers=names, subscribe="flights", columns="tags,keys,body")
    .load()
)
fields = "origin string, carrier string, hour int, dep_delay int, dep_time int"
flights = messages.select(f.from_json(f.col("body").cast("string"), fields).alias("it")).select(
    "it.*"
)
flights = flights.cache()
flights.count()

# %% [markdown]
# ## By hour of the day
# Delays add up: what leaves late in the morning is late all day.

# %%
by_hour = (
    flights.groupBy("hour")
    .agg(
        f.count("*").alias("flights"),
        f.expr("percentile_approx(dep_delay, 0.5)").alias("median"),
        f.expr("percentile_approx(dep_delay, 0.9)").alias("p90"),
        f.avg(f.col("dep_time").isNull().cast("int")).alias("cancelled"),
    )
    .orderBy("hour")
    .toPandas()
)
by_hour

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
left.plot(by_hour["hour"], by_hour["p90"], label="90 % leave before")
left.plot(by_hour["hour"], by_hour["median"], label="half leave before")
left.set_xlabel("scheduled hour")
left.set_ylabel("minutes late")
left.legend(frameon=False)

# %% [markdown]
# ## By carrier
# The tag of a message is the carrier, so `tags` in the options would read one of them alone.

# %%
by_carrier = (
    flights.groupBy("carrier")
    .agg(f.count("*").alias("flights"), f.avg("dep_delay").alias("mean"))
    .orderBy("mean")
    .toPandas()
)
right.barh(by_carrier["carrier"], by_carrier["mean"])
right.set_xlabel("minutes late, mean")
figure.savefig(out / "flight_delays.png", dpi=120)
figure
