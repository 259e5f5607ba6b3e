# For machines that reach no package index. Where there is one:
#     docker build -t caliope . && docker save caliope | gzip > caliope.tar.gz
# and there:
#     docker load < caliope.tar.gz
#     docker run --rm --network none -v "$PWD:/work" -u "$(id -u):$(id -g)" caliope evaluate log.csv ...
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/caliope \
    && /opt/caliope/bin/python -m pip install --no-cache-dir -c constraints.txt '.[all]'

FROM python:3.11-slim
COPY --from=build /opt/caliope /opt/caliope
# faiss and scikit-learn need it.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
# Whoever runs it has no home of their own in here.
ENV PATH=/opt/caliope/bin:$PATH HOME=/tmp MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /work
ENTRYPOINT ["caliope"]
CMD ["--help"]
