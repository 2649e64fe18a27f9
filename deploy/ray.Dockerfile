# The image of every node of a Ray cluster: Ray's, with this package in it. Build it from the root of the repository:
#   docker build -f deploy/ray.Dockerfile -t REGISTRY/rllib:0.1.0 .
FROM rayproject/ray:2.60.0-py311
COPY --chown=ray:users . /home/ray/rllib
RUN pip install --no-cache-dir -c /home/ray/rllib/constraints.txt torch==2.13.0 /home/ray/rllib
